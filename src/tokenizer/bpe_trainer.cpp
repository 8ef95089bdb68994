#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/gpt2_pieces.h"
#include "tokenizer/pair_map.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

constexpr size_t kBatchBytes = size_t{16} << 20;  // text held at a time while counting
constexpr size_t kTileBytes = size_t{256} << 10;

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Counts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

void count_text(std::string_view text, Counts& counts) {
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = gpt2_piece_end(text, begin);
    std::string_view piece = text.substr(begin, end - begin);
    auto known = counts.find(piece);
    if (known != counts.end()) {
      ++known->second;
    } else {
      counts.emplace(piece, 1);
    }
  }
}

// Tiles end at piece boundaries, so that the counts do not depend on where they lie.
void cut_tiles(std::string_view text, std::vector<std::string_view>& tiles) {
  while (!text.empty()) {
    size_t size = gpt2_piece_boundary(text, std::min(kTileBytes, text.size()));
    tiles.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
}

// The merging half. All distinct pieces lie one behind another, a position per byte. A symbol
// covers as many positions as its token has bytes, so its right neighbour is found by adding its
// size; its left neighbour through `start_`. Merging a pair touches only the places where it
// occurs.
class Merger {
 public:
  Merger(const std::vector<PieceCount>& pieces, const BpeTrainerOptions& options);
  BpeModel run();

 private:
  static constexpr int32_t kInside = -1;  // not the first position of a symbol
  static constexpr int32_t kBorder = -2;  // between two pieces

  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    std::vector<uint32_t> places;  // positions of the left symbol; some may have changed since
  };
  struct Candidate {
    int64_t count;
    int32_t left, right;
    uint32_t pair;
    // The top of the heap: highest count, then smallest pair.
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      return std::pair(left, right) > std::pair(other.left, other.right);
    }
  };

  uint32_t size_of(int32_t token) const {
    return static_cast<uint32_t>(model_.tokens[static_cast<size_t>(token)].size());
  }
  void lay_out(const std::vector<PieceCount>& pieces);
  uint32_t pair_of(int32_t left, int32_t right);
  void add_place(int32_t left, int32_t right, uint32_t place);
  void remove_place(int32_t left, int32_t right, uint32_t place);
  void queue(uint32_t pair);
  void queue_new_pairs();
  void merge(uint32_t pair, int32_t result);

  const BpeTrainerOptions& options_;
  BpeModel model_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<int32_t> symbols_;  // by position: the token that begins there, kInside or kBorder
  std::vector<uint32_t> start_;   // by a symbol's last position: its first
  std::vector<uint32_t> piece_;   // by position: the piece
  std::vector<int64_t> counts_;   // by piece
  PairMap<uint32_t> pair_numbers_;
  std::vector<Pair> pairs_;
  std::priority_queue<Candidate> candidates_;
  uint32_t queued_ = 0;  // this many of pairs_ have been queued
};

Merger::Merger(const std::vector<PieceCount>& pieces, const BpeTrainerOptions& options)
    : options_(options) {
  model_.tokens.emplace_back(kEndOfTextName);
  model_.added = {{.text = std::string(kEndOfTextName), .special = true}};
  model_.end_of_text = 0;
  for (uint8_t byte : byte_alphabet_order()) {
    byte_ids_[byte] = static_cast<int32_t>(model_.tokens.size());
    model_.tokens.emplace_back(1, static_cast<char>(byte));
  }
  lay_out(pieces);
}

void Merger::lay_out(const std::vector<PieceCount>& pieces) {
  size_t positions = 1;
  for (const PieceCount& piece : pieces) positions += piece.bytes.size() + 1;
  if (positions > UINT32_MAX) {
    throw UserError(cat("cannot train a tokenizer on ",
                        format_bytes(static_cast<int64_t>(positions)),
                        " of distinct words (at most 4 GiB): give a sample of the text"));
  }
  symbols_.assign(positions, kBorder);
  start_.resize(positions);
  piece_.resize(positions);
  size_t position = 1;
  for (const PieceCount& piece : pieces) {
    for (char byte : piece.bytes) {
      symbols_[position] = byte_ids_[static_cast<unsigned char>(byte)];
      start_[position] = static_cast<uint32_t>(position);
      piece_[position] = static_cast<uint32_t>(counts_.size());
      ++position;
    }
    ++position;
    counts_.push_back(piece.count);
  }
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) {
    if (symbols_[i] < 0 || symbols_[i + 1] < 0) continue;
    add_place(symbols_[i], symbols_[i + 1], static_cast<uint32_t>(i));
  }
}

uint32_t Merger::pair_of(int32_t left, int32_t right) {
  auto [number, inserted] = pair_numbers_.insert(left, right, static_cast<uint32_t>(pairs_.size()));
  if (inserted) pairs_.push_back({left, right});
  return number;
}

void Merger::add_place(int32_t left, int32_t right, uint32_t place) {
  Pair& pair = pairs_[pair_of(left, right)];
  pair.count += counts_[piece_[place]];
  pair.places.push_back(place);
}

// The place stays in the list; merge() finds that it has changed.
void Merger::remove_place(int32_t left, int32_t right, uint32_t place) {
  pairs_[pair_of(left, right)].count -= counts_[piece_[place]];
}

void Merger::queue(uint32_t number) {
  const Pair& pair = pairs_[number];
  if (pair.count < options_.min_frequency) return;
  candidates_.push({pair.count, pair.left, pair.right, number});
}

// A merge adds places only to pairs with its new token: pairs that did not exist before.
void Merger::queue_new_pairs() {
  for (; queued_ < pairs_.size(); ++queued_) queue(queued_);
}

void Merger::merge(uint32_t number, int32_t result) {
  int32_t left = pairs_[number].left, right = pairs_[number].right;
  uint32_t left_size = size_of(left), size = size_of(result);
  // Places were added in ascending order, so this merges leftmost first, as the encoder does.
  for (uint32_t place : std::exchange(pairs_[number].places, {})) {
    uint32_t middle = place + left_size, next = place + size;
    if (symbols_[place] != left || symbols_[middle] != right) continue;
    int32_t before = symbols_[place - 1] == kBorder ? kBorder : symbols_[start_[place - 1]];
    int32_t after = symbols_[next];
    symbols_[middle] = kInside;
    symbols_[place] = result;
    start_[next - 1] = place;
    remove_place(left, right, place);
    if (before >= 0) {
      uint32_t previous = start_[place - 1];
      remove_place(before, left, previous);
      add_place(before, result, previous);
    }
    if (after >= 0) {
      remove_place(right, after, place);
      add_place(result, after, place);
    }
  }
}

BpeModel Merger::run() {
  queue_new_pairs();
  auto wanted = static_cast<size_t>(options_.vocab_size);
  while (model_.tokens.size() < wanted && !candidates_.empty()) {
    Candidate best = candidates_.top();
    candidates_.pop();
    if (pairs_[best.pair].count != best.count) {  // counts only fall once a pair is queued
      queue(best.pair);
      continue;
    }
    // Always a new token: nothing merges across a token's ends, so what happens between them, and
    // with it the last pair, follows from its bytes.
    auto bytes = [&](int32_t id) { return model_.tokens[static_cast<size_t>(id)]; };
    auto result = static_cast<int32_t>(model_.tokens.size());
    model_.tokens.push_back(bytes(best.left) + bytes(best.right));
    model_.merges.push_back({best.left, best.right, result});
    merge(best.pair, result);
    queue_new_pairs();
    if (options_.progress && model_.merges.size() % 256 == 0) {
      options_.progress(static_cast<int64_t>(model_.tokens.size()), options_.vocab_size);
    }
  }
  return std::move(model_);
}

}  // namespace

std::vector<PieceCount> count_pieces(const std::function<bool(std::string&)>& next, int threads) {
  ThreadPool pool(std::max(1, threads));
  std::vector<Counts> counts(static_cast<size_t>(pool.threads()));
  bool more = true;
  while (more) {
    std::vector<std::string> batch;
    std::vector<std::string_view> tiles;
    std::string document;
    for (size_t bytes = 0; bytes < kBatchBytes && (more = next(document));) {
      bytes += document.size();
      batch.push_back(std::exchange(document, {}));
    }
    for (const std::string& text : batch) cut_tiles(text, tiles);
    pool.run(static_cast<int64_t>(tiles.size()), [&](int64_t tile, int thread) {
      count_text(tiles[static_cast<size_t>(tile)], counts[static_cast<size_t>(thread)]);
    });
  }
  for (size_t i = 1; i < counts.size(); ++i) {
    for (const auto& [piece, count] : counts[i]) counts[0][piece] += count;
    counts[i] = {};
  }
  std::vector<PieceCount> pieces;
  pieces.reserve(counts[0].size());
  while (!counts[0].empty()) {
    auto entry = counts[0].extract(counts[0].begin());
    pieces.push_back({std::move(entry.key()), entry.mapped()});
  }
  return pieces;
}

BpeModel train_bpe(const std::vector<PieceCount>& pieces, const BpeTrainerOptions& options) {
  if (options.vocab_size < 257) {
    throw UserError(
        cat("the vocabulary of a byte-level BPE has at least 257 tokens (256 bytes and ",
            kEndOfTextName, "), not ", options.vocab_size));
  }
  if (options.min_frequency < 1) {
    throw UserError(cat("min_frequency must be at least 1, not ", options.min_frequency));
  }
  if (pieces.empty()) throw UserError("no text to train a tokenizer on: the input is empty");
  return Merger(pieces, options).run();
}

BpeModel train_bpe(const std::function<bool(std::string&)>& next,
                   const BpeTrainerOptions& options) {
  return train_bpe(count_pieces(next, options.threads), options);
}

}  // namespace tessera
