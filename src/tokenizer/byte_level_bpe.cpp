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
#include "tokenizer/llama3_pieces.h"
#include "tokenizer/nfc.h"

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
  auto add_text = [&](std::string_view text) {
    add(text.size());
    hasher.add(text.data(), text.size());
  };
  add_text("tessera byte-level BPE 2");
  add(model.tokens.size());
  for (const std::string& token : model.tokens) add_text(token);
  add(model.merges.size());
  hasher.add(model.merges.data(), model.merges.size() * sizeof(BpeModel::Merge));
  add(model.added.size());
  for (const AddedToken& token : model.added) {
    add_text(token.text);
    add(static_cast<uint64_t>(token.id));
    for (bool flag : {token.special, token.normalized, token.single_word, token.strip_left,
                      token.strip_right, token.ordinary}) {
      add(flag);
    }
  }
  add(static_cast<uint64_t>(model.end_of_text));
  add(model.document_prefix.size());
  for (int32_t id : model.document_prefix) add(static_cast<uint64_t>(id));
  add(static_cast<uint64_t>(model.pattern));
  for (bool flag : {model.nfc, model.whole_pieces, model.rank_is_result}) add(flag);
  return hasher.digest();
}

// The added tokens that are looked for before normalization, or behind it: those normalized too.
AddedTokens added_tokens_of(const BpeModel& model, bool normalized) {
  std::vector<AddedToken> tokens;
  std::string buffer;
  for (const AddedToken& token : model.added) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    if (normalized && model.nfc) tokens.back().text = to_nfc(token.text, buffer);
  }
  return AddedTokens(std::move(tokens));
}

// The first place at or behind `from` behind a line end that stands between two visible ASCII
// characters. Every pattern ends a piece there and never looks past it; nor does normalization.
size_t cut_between_lines(std::string_view text, size_t from) {
  auto visible = [](char c) { return c > ' ' && c < '\x7f'; };
  for (size_t end = text.find('\n', from); end != std::string_view::npos;
       end = text.find('\n', end + 1)) {
    if (end > 0 && end + 1 < text.size() && visible(text[end - 1]) && visible(text[end + 1])) {
      return end + 1;
    }
  }
  return text.size();
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(BpeModel model)
    : model_(std::move(model)),
      raw_added_(added_tokens_of(model_, false)),
      normalized_added_(added_tokens_of(model_, true)),
      steps_(model_.merges.size()) {
  static std::atomic<uint64_t> instances{0};
  instance_ = ++instances;
  auto known = [&](int32_t id) { return id >= 0 && id < vocab_size(); };
  TESSERA_CHECK(std::ranges::is_sorted(model_.added, {}, &AddedToken::id));
  for (const AddedToken& token : model_.added) {
    TESSERA_CHECK(known(token.id) && model_.tokens[static_cast<size_t>(token.id)] == token.text);
    bool strips = !token.special && (token.strip_left || token.strip_right);
    if (strips || token.text.find('\n') != std::string::npos) cuts_between_lines_ = false;
  }
  TESSERA_CHECK(known(model_.end_of_text), "no end-of-text token");
  TESSERA_CHECK(std::ranges::all_of(model_.document_prefix, known));
  index_tokens();
  int32_t rank = 0;
  for (const BpeModel::Merge& merge : model_.merges) {
    TESSERA_CHECK(known(merge.left) && known(merge.right) && known(merge.result));
    if (model_.rank_is_result) rank = merge.result;
    bool inserted = steps_.insert(merge.left, merge.right, {rank++, merge.result}).second;
    TESSERA_CHECK(inserted, "a pair merges twice");
  }
  fingerprint_ = fingerprint_of(model_);
}

void ByteLevelBpe::index_tokens() {
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string& token = model_.tokens[static_cast<size_t>(id)];
    if (!model_.is_ordinary(id)) continue;
    if (token.size() == 1) byte_ids_[static_cast<unsigned char>(token[0])] = id;
    if (model_.whole_pieces) whole_.emplace(token, id);
  }
  for (int32_t id : byte_ids_) TESSERA_CHECK(id >= 0, "a byte has no token");
}

void ByteLevelBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  encode_text(text, false, ids);
}

void ByteLevelBpe::encode_prompt(std::string_view text, std::vector<int32_t>& ids) const {
  ids.insert(ids.end(), model_.document_prefix.begin(), model_.document_prefix.end());
  encode_text(text, true, ids);
}

size_t ByteLevelBpe::cut(std::string_view text, size_t from) const {
  return cuts_between_lines_ ? cut_between_lines(text, from) : text.size();
}

void ByteLevelBpe::encode_text(std::string_view text, bool special,
                               std::vector<int32_t>& ids) const {
  auto take = [&](const AddedToken& token) { ids.push_back(token.id); };
  std::string buffer;
  auto normalize = [&](std::string_view stretch) {
    if (model_.nfc) stretch = to_nfc(stretch, buffer);
    normalized_added_.split(
        stretch, special, [&](std::string_view part) { encode_stretch(part, ids); }, take);
  };
  raw_added_.split(text, special, normalize, take);
}

void ByteLevelBpe::encode_stretch(std::string_view text, std::vector<int32_t>& ids) const {
  switch (model_.pattern) {
    case PiecePattern::kGpt2: return encode_pieces(text, gpt2_piece_end, ids);
    case PiecePattern::kLlama3:
      return encode_pieces(
          text, [](std::string_view t, size_t i) { return llama3_piece_end(t, i, 3); }, ids);
    case PiecePattern::kQwen2:
      return encode_pieces(
          text, [](std::string_view t, size_t i) { return llama3_piece_end(t, i, 1); }, ids);
  }
}

template <class PieceEnd>
void ByteLevelBpe::encode_pieces(std::string_view text, PieceEnd piece_end,
                                 std::vector<int32_t>& ids) const {
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
  if (model_.whole_pieces) {
    auto token = whole_.find(piece);
    if (token != whole_.end()) return ids.push_back(token->second);
  }
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
