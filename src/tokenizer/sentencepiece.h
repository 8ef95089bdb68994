#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_token_encoder.h"
#include "tokenizer/segmenter.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/sentencepiece_normalizer.h"

namespace tessera {

// Tokenizers of SentencePiece's kind: text is normalised (sentencepiece_normalizer.h), then cut by
// BPE (character_bpe.h) or a unigram model (unigram.h). The ids equal SentencePiece's for its
// .model, Hugging Face `tokenizers`' for the same model in a tokenizer.json.
//
// decode(encode(text)) is the text with what its normalisation loses: in any model U+2581 comes
// back as a space; in a .model bytes that are not UTF-8 come back as U+FFFD, its charsmap's rules
// stay applied and its remove_extra_whitespaces collapses spaces; a Metaspace pre-tokenizer takes a
// space at the beginning for the one it would put there. Without byte fallback unknown characters
// come back as the unknown piece. A model with byte fallback and identity rules loses nothing else.
class SentencePieceTokenizer final : public AddedTokenEncoder {
 public:
  // The model must have been checked, as readers of files do. UserError, with `name` for the
  // message, where its pieces are too many for the tables they need.
  SentencePieceTokenizer(SentencePieceModel model, const std::string& name);

  std::span<const int32_t> document_prefix() const override { return model_.document_prefix; }
  // Nowhere: a text that begins there would get a space in front.
  size_t cut(std::string_view text, size_t) const override { return text.size(); }
  int32_t vocab_size() const override { return static_cast<int32_t>(model_.pieces.size()); }
  int32_t text_vocab_size() const override { return text_vocab_size_; }
  int32_t end_of_text() const override { return model_.end_of_text; }
  std::string_view token_bytes(int32_t id) const override;
  // Without the space in front of the first piece that is no control piece, where encoding put one.
  std::string decode(std::span<const int32_t> ids) const override;
  std::string description() const override;
  uint64_t fingerprint() const override { return fingerprint_; }

  const SentencePieceModel& model() const { return model_; }

 private:
  void encode_text(const MarkedText& marked, SpecialNames special, std::vector<int32_t>& ids,
                   std::vector<EncodedRun>* runs) const override;
  void encode_stretch(std::string_view normalized, std::vector<int32_t>& ids) const;

  SentencePieceModel model_;
  std::vector<std::string> bytes_;  // by id
  SentencePieceNormalizer normalizer_;
  std::unique_ptr<const Segmenter> segmenter_;
  AddedTokens raw_added_, normalized_added_;
  uint64_t fingerprint_;
  int32_t text_vocab_size_;
};

}  // namespace tessera
