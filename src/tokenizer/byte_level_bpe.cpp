#include "tokenizer/byte_level_bpe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/gpt2_pieces.h"

namespace tessera {
namespace {

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr size_t kShortPiece = 32;  // bytes: up to here scanning for the lowest rank beats a heap

// The ids of pieces seen before, one table a thread: each piece has one slot, and a newer piece
// takes it. A slot is a cache line; pieces that do not fit in one are merged anew.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 24, kMaxIds = 8;

  struct alignas(64) Slot {
    char bytes[kMaxBytes];
    int32_t ids[kMaxIds];
    uint8_t size = 0;  // 0: empty
    uint8_t count = 0;
  };

  // The calling thread's cache, emptied when it served another tokenizer last.
  static PieceCache& of_thread(uint64_t instance) {
    thread_local PieceCache cache;
    if (cache.instance_ != instance) {
      cache.slots_.assign(kSlots, Slot{});
      cache.instance_ = instance;
    }
    return cache;
  }

  Slot& slot(std::string_view piece) { return slots_[hash_text(piece) % kSlots]; }

 private:
  static constexpr size_t kSlots = size_t{1} << 15;  // 2 MiB

  uint64_t instance_ = 0;
  std::vector<Slot> slots_;
};

uint64_t fingerprint_of(const BpeModel& model) {
  Hasher hasher;
  auto add = [&](uint64_t n) { hasher.add(&n, sizeof n); };
  constexpr std::string_view kRule = "tessera byte-level BPE, GPT-2 pieces 1";
  hasher.add(kRule.data(), kRule.size());
  add(model.tokens.size());
  for (const std::string& token : model.tokens) {
    add(token.size());
    hasher.add(token.data(), token.size());
  }
  add(model.merges.size());
  hasher.add(model.merges.data(), model.merges.size() * sizeof(BpeModel::Merge));
  add(model.special.size());
  for (int32_t id : model.special) add(static_cast<uint64_t>(id));
  add(static_cast<uint64_t>(model.end_of_text));
  return hasher.digest();
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(BpeModel model)
    : model_(std::move(model)), steps_(model_.merges.size()) {
  static std::atomic<uint64_t> instances{0};
  instance_ = ++instances;
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string& token = model_.tokens[static_cast<size_t>(id)];
    if (token.size() != 1 || std::ranges::binary_search(model_.special, id)) continue;
    byte_ids_[static_cast<unsigned char>(token[0])] = id;
  }
  for (int32_t id : byte_ids_) TESSERA_CHECK(id >= 0, "a byte has no token");
  auto known = [&](int32_t id) { return id >= 0 && id < vocab_size(); };
  TESSERA_CHECK(known(model_.end_of_text), "no end-of-text token");
  int32_t rank = 0;
  for (const BpeModel::Merge& merge : model_.merges) {
    TESSERA_CHECK(known(merge.left) && known(merge.right) && known(merge.result));
    bool inserted = steps_.insert(merge.left, merge.right, {rank++, merge.result}).second;
    TESSERA_CHECK(inserted, "a pair merges twice");
  }
  fingerprint_ = fingerprint_of(model_);
}

void ByteLevelBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  PieceCache& cache = PieceCache::of_thread(instance_);
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = piece_end(text, begin);
    std::string_view piece = text.substr(begin, end - begin);
    if (piece.size() == 1) {
      ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
      continue;
    }
    if (piece.size() > PieceCache::kMaxBytes) {
      merge_piece(piece, ids);
      continue;
    }
    PieceCache::Slot& slot = cache.slot(piece);
    if (slot.size == piece.size() && std::memcmp(slot.bytes, piece.data(), piece.size()) == 0) {
      ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
      continue;
    }
    size_t before = ids.size();
    merge_piece(piece, ids);
    size_t count = ids.size() - before;
    if (count > PieceCache::kMaxIds) continue;
    std::ranges::copy(piece, slot.bytes);
    std::copy(ids.end() - static_cast<ptrdiff_t>(count), ids.end(), slot.ids);
    slot.size = static_cast<uint8_t>(piece.size());
    slot.count = static_cast<uint8_t>(count);
  }
}

void ByteLevelBpe::merge_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() <= kShortPiece) {
    merge_short(piece, ids);
  } else {
    merge_long(piece, ids);
  }
}

void ByteLevelBpe::merge_short(std::string_view piece, std::vector<int32_t>& ids) const {
  int32_t symbols[kShortPiece];
  Step steps[kShortPiece];  // steps[i]: what symbols i and i + 1 merge to
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) {
    symbols[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  }
  auto look_up = [&](size_t i) {
    const Step* step = steps_.find(symbols[i], symbols[i + 1]);
    steps[i] = step ? *step : Step{kNoRank, 0};
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (steps[i].rank < steps[best].rank) best = i;
    }
    if (steps[best].rank == kNoRank) break;
    symbols[best] = steps[best].result;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      steps[i] = steps[i + 1];
    }
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  ids.insert(ids.end(), symbols, symbols + count);
}

void ByteLevelBpe::merge_long(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw UserError(cat("cannot tokenize a single word of ",
                        format_bytes(static_cast<int64_t>(piece.size())),
                        " (at most 2 GiB): is the input text?"));
  }
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbour
    int32_t previous, next;
  };
  struct Candidate {
    int32_t rank, position, left, right, result;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, position) > std::pair(other.rank, other.position);
    }
  };
  auto size = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size() + 1, Symbol{-1, -1, -1});  // an end that never merges
  auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i < size; ++i) {
    auto byte = static_cast<unsigned char>(piece[static_cast<size_t>(i)]);
    at(i) = {byte_ids_[byte], i - 1, i + 1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  auto consider = [&](int32_t i) {
    int32_t left = at(i).id, right = at(at(i).next).id;
    if (right < 0) return;
    if (const Step* step = steps_.find(left, right)) {
      candidates.push({step->rank, i, left, right, step->result});
    }
  };
  for (int32_t i = 0; i < size; ++i) consider(i);
  while (!candidates.empty()) {
    Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = at(best.position);
    if (left.id != best.left) continue;  // one of the two has merged since
    Symbol& right = at(left.next);
    if (right.id != best.right) continue;
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    at(left.next).previous = best.position;
    if (left.previous >= 0) consider(left.previous);
    consider(best.position);
  }
  for (int32_t i = 0; i < size; i = at(i).next) ids.push_back(at(i).id);
}

std::string_view ByteLevelBpe::token_bytes(int32_t id) const {
  check_id(id);
  return model_.tokens[static_cast<size_t>(id)];
}

std::string ByteLevelBpe::description() const {
  return cat("byte-level BPE, ", vocab_size(), " tokens, ", model_.merges.size(), " merges");
}

}  // namespace tessera
