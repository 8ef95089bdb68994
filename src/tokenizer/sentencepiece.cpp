#include "tokenizer/sentencepiece.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/character_bpe.h"
#include "tokenizer/unigram.h"

namespace tessera {
namespace {

using Algorithm = SentencePieceModel::Algorithm;
using Kind = SentencePieceModel::Kind;

std::string bytes_of(const SentencePieceModel& model, const SentencePieceModel::Piece& piece) {
  switch (piece.kind) {
    case Kind::kByte: return std::string(1, static_cast<char>(byte_of_piece(piece.text)));
    case Kind::kControl: return piece.text;
    case Kind::kUnknown: return model.unknown_text;
    default: return with_spaces(piece.text);
  }
}

std::unique_ptr<const Segmenter> segmenter_of(const SentencePieceModel& model,
                                              const std::string& name) {
  if (model.algorithm == Algorithm::kBpe) return std::make_unique<CharacterBpe>(model, name);
  return std::make_unique<Unigram>(model, name);
}

// Those that are looked for in the text as it comes, or behind its normalisation, which then
// applies to their own text too. Where normalisation comes last, those of the second kind are
// looked for between those of the first.
AddedTokens added_tokens_of(const SentencePieceModel& model,
                            const SentencePieceNormalizer& normalizer, bool normalized,
                            const std::string& name) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, std::string> seen;  // their own text by the one looked for
  for (const AddedToken& token : model.added) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    if (normalized && !model.added_first) {
      tokens.back().text = normalizer.normalize(token.text, true);
    }
    auto [other, inserted] = seen.emplace(tokens.back().text, token.text);
    if (!inserted) {
      throw UserError(cat("cannot read tokenizer '", name, "': its added tokens '", other->second,
                          "' and '", token.text, "' are the same once normalized"));
    }
  }
  return AddedTokens(std::move(tokens), normalized && !model.added_first && model.escape_spaces);
}

uint64_t fingerprint_of(const SentencePieceModel& model) {
  Hasher hasher;
  auto add = [&](auto value) { hasher.add(&value, sizeof value); };
  auto add_text = [&](std::string_view text) {
    add(text.size());
    hasher.add(text.data(), text.size());
  };
  add_text("tessera SentencePiece 1");
  add(model.algorithm);
  add(model.pieces.size());
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    add_text(piece.text);
    add(piece.score);
    add(piece.kind);
  }
  add(model.merges.has_value());
  if (model.merges) {
    add(model.merges->size());
    hasher.add(model.merges->data(), model.merges->size() * sizeof(BpeModel::Merge));
  }
  add(model.added.size());
  for (const AddedToken& token : model.added) {
    add_text(token.text);
    add(token.id);
    for (bool flag : {token.special, token.normalized, token.single_word, token.strip_left,
                      token.strip_right, token.ordinary}) {
      add(flag);
    }
  }
  add(model.document_prefix.size());
  for (int32_t id : model.document_prefix) add(id);
  add(model.unknown);
  add(model.end_of_text);
  add_text(model.charsmap);
  add(model.prefix);
  for (bool flag : {model.byte_fallback, model.fuse_unknown, model.prefix_once,
                    model.collapse_spaces, model.escape_spaces, model.keep_invalid}) {
    add(flag);
  }
  if (model.added_first && std::ranges::any_of(model.added, &AddedToken::normalized)) add(true);
  return hasher.digest();
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model, const std::string& name)
    : model_(std::move(model)),
      normalizer_(model_, name),
      segmenter_(segmenter_of(model_, name)),
      raw_added_(added_tokens_of(model_, normalizer_, false, name)),
      normalized_added_(added_tokens_of(model_, normalizer_, true, name)),
      fingerprint_(fingerprint_of(model_)),
      text_vocab_size_(count_without_special_tail(vocab_size(), model_.added,
                                                  {model_.end_of_text, model_.unknown},
                                                  model_.document_prefix)) {
  bytes_.reserve(model_.pieces.size());
  for (const SentencePieceModel::Piece& piece : model_.pieces) {
    bytes_.push_back(bytes_of(model_, piece));
  }
}

void SentencePieceTokenizer::encode_text(const MarkedText& marked, SpecialNames special,
                                         std::vector<int32_t>& ids,
                                         std::vector<EncodedRun>* runs) const {
  const std::string_view text = marked.text;
  auto begin_of = [&](std::string_view part) {
    return static_cast<size_t>(part.data() - text.data());
  };
  auto take = [&](const AddedToken& token, TextRange) { ids.push_back(token.id); };
  auto normalize = [&](std::string_view part) {
    return normalizer_.normalize(part, marked.begins && part.data() == text.data());
  };
  auto encode_normalized = [&](std::string_view part) { encode_stretch(part, ids); };
  auto encode_raw = [&](std::string_view part) { encode_stretch(normalize(part), ids); };
  raw_added_.split(
      text, special,
      [&](std::string_view stretch) {
        const size_t begin = begin_of(stretch);
        if (model_.added_first) {
          const SpecialNames names{special.anywhere, special.ranges, begin};
          normalized_added_.split(stretch, names, encode_raw, take);
        } else {
          // Nobody knows where something stands in normalized text.
          const SpecialNames names{special.anywhere};
          normalized_added_.split(normalize(stretch), names, encode_normalized, take);
        }
        if (runs) runs->push_back({{begin, begin + stretch.size()}, ids.size(), false});
      },
      [&](const AddedToken& token, TextRange name) {
        take(token, name);
        if (runs) runs->push_back({name, ids.size(), true});
      });
}

void SentencePieceTokenizer::encode_stretch(std::string_view normalized,
                                            std::vector<int32_t>& ids) const {
  auto first = static_cast<ptrdiff_t>(ids.size());
  segmenter_->encode(normalized, ids);
  if (!model_.fuse_unknown || model_.byte_fallback) return;
  auto both_unknown = [&](int32_t a, int32_t b) { return a == b && a == model_.unknown; };
  ids.erase(std::unique(ids.begin() + first, ids.end(), both_unknown), ids.end());
}

std::string_view SentencePieceTokenizer::token_bytes(int32_t id) const {
  check_id(id);
  return bytes_[static_cast<size_t>(id)];
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  bool strip = model_.prefix != SentencePieceModel::Prefix::kNone || model_.collapse_spaces;
  std::string text;
  for (int32_t id : ids) {
    std::string_view bytes = token_bytes(id);
    Kind kind = model_.pieces[static_cast<size_t>(id)].kind;
    if (strip && kind != Kind::kControl) {
      bool is_text = kind != Kind::kByte && kind != Kind::kUnknown;
      if (is_text && bytes.starts_with(' ')) bytes.remove_prefix(1);
      strip = false;
    }
    text += bytes;
  }
  return text;
}

std::string SentencePieceTokenizer::description() const {
  return cat("SentencePiece ", model_.algorithm == Algorithm::kBpe ? "BPE" : "unigram", ", ",
             vocab_size(), " tokens");
}

}  // namespace tessera
