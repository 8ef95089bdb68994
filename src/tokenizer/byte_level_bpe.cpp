#include "tokenizer/byte_level_bpe.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/character_kinds.h"
#include "tokenizer/code_points.h"
#include "tokenizer/gpt2_pieces.h"
#include "tokenizer/llama3_pieces.h"
#include "tokenizer/nfc.h"
#include "tokenizer/piece_cache.h"

namespace tessera {
namespace {

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

// Both never look past the place, and a line end composes with nothing in normalization.

// Under GPT-2's pattern a piece ends where white space follows a character that is none: the first
// such place at or behind `from` with a line end, "\n" or "\r\n".
size_t cut_before_line_end(std::string_view text, size_t from, bool at_returns) {
  CharacterReader characters(text);
  auto follows_text = [&](size_t place) {
    return place >= std::max<size_t>(from, 1) &&
           characters.at(character_before(text, place)).kind != CharacterKind::kSpace;
  };
  for (size_t end = text.find('\n', from); end != std::string_view::npos;
       end = text.find('\n', end + 1)) {
    if (follows_text(end)) return end;
    if (at_returns && end > 0 && text[end - 1] == '\r' && follows_text(end - 1)) return end - 1;
  }
  return text.size();
}

// Under the others one ends behind the last line end before a character that is no white space.
size_t cut_behind_line_end(std::string_view text, size_t from) {
  CharacterReader characters(text);
  auto begins_text = [&](size_t place) {
    const char c = text[place];
    if (c > ' ' && c < '\x7f') return true;
    const CharacterKind kind = characters.at(place).kind;  // marks are none of these
    return kind == CharacterKind::kLetter || kind == CharacterKind::kNumber;
  };
  for (size_t end = text.find('\n', from); end != std::string_view::npos;
       end = text.find('\n', end + 1)) {
    if (end + 1 < text.size() && begins_text(end + 1)) return end + 1;
  }
  return text.size();
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(BpeModel model)
    : model_(std::move(model)),
      raw_added_(added_tokens_of(model_, false)),
      normalized_added_(added_tokens_of(model_, true)),
      merges_(model_.merges.size()),
      owner_(PieceCache::new_owner()) {
  auto known = [&](int32_t id) { return id >= 0 && id < vocab_size(); };
  TESSERA_CHECK(std::ranges::is_sorted(model_.added, {}, &AddedToken::id));
  for (const AddedToken& token : model_.added) {
    TESSERA_CHECK(known(token.id) && model_.tokens[static_cast<size_t>(token.id)] == token.text);
    bool strips = !token.special && (token.strip_left || token.strip_right);
    if (strips || token.text.find('\n') != std::string::npos) cuts_between_lines_ = false;
    if (token.text.find('\r') != std::string::npos) cuts_at_returns_ = false;
  }
  TESSERA_CHECK(known(model_.end_of_text), "no end-of-text token");
  TESSERA_CHECK(std::ranges::all_of(model_.document_prefix, known));
  index_tokens();
  int32_t rank = 0;
  for (const BpeModel::Merge& merge : model_.merges) {
    TESSERA_CHECK(known(merge.left) && known(merge.right) && known(merge.result));
    if (model_.rank_is_result) rank = merge.result;
    bool inserted = merges_.add(merge.left, merge.right, rank++, merge.result);
    TESSERA_CHECK(inserted, "a pair merges twice");
  }
  fingerprint_ = fingerprint_of(model_);
  text_vocab_size_ = count_without_special_tail(vocab_size(), model_.added, {model_.end_of_text},
                                                model_.document_prefix);
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

size_t ByteLevelBpe::cut(std::string_view text, size_t from) const {
  if (!cuts_between_lines_) return text.size();
  return model_.pattern == PiecePattern::kGpt2 ? cut_before_line_end(text, from, cuts_at_returns_)
                                               : cut_behind_line_end(text, from);
}

void ByteLevelBpe::encode_text(const MarkedText& marked, SpecialNames special,
                               std::vector<int32_t>& ids, std::vector<EncodedRun>* runs) const {
  const std::string_view text = marked.text;
  auto take = [&](const AddedToken& token, TextRange name) {
    ids.push_back(token.id);
    if (runs) runs->push_back({name, ids.size(), true});
  };
  std::string buffer;
  auto normalize = [&](std::string_view raw) {
    const std::string_view stretch = model_.nfc ? to_nfc(raw, buffer) : raw;
    const auto begin = static_cast<size_t>(raw.data() - text.data());
    // In what normalization changed nobody knows where something stands.
    const bool known = special.anywhere || (runs && stretch == raw);
    const SpecialNames names =
        known ? SpecialNames{special.anywhere, special.ranges, begin} : SpecialNames{};
    normalized_added_.split(
        stretch, names, [&](std::string_view part) { encode_stretch(part, ids); },
        [&](const AddedToken& token, TextRange) { ids.push_back(token.id); });
    if (runs) runs->push_back({{begin, begin + raw.size()}, ids.size(), false});
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
  PieceCache& cache = PieceCache::of_thread(owner_);
  auto merge = [this](std::string_view piece, std::vector<int32_t>& out) {
    merge_piece(piece, out);
  };
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = piece_end(text, begin);
    std::string_view piece = text.substr(begin, end - begin);
    if (piece.size() == 1) {
      ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    } else {
      cache.append(piece, ids, merge);
    }
  }
}

void ByteLevelBpe::merge_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (model_.whole_pieces) {
    auto token = whole_.find(piece);
    if (token != whole_.end()) return ids.push_back(token->second);
  }
  const size_t first = ids.size();
  for (char byte : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  ids.resize(first + merges_.merge(std::span(ids).subspan(first)));
}

std::string_view ByteLevelBpe::token_bytes(int32_t id) const {
  check_id(id);
  return model_.tokens[static_cast<size_t>(id)];
}

std::string ByteLevelBpe::description() const {
  return cat("byte-level BPE, ", vocab_size(), " tokens, ", model_.merges.size(), " merges");
}

}  // namespace tessera
