#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_token_encoder.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/pair_merges.h"

namespace tessera {

// Byte-level BPE in the manner of GPT-2: added tokens are taken out of the text, the rest is
// normalized if the model says so and cut into pieces; the bytes of a piece are merged, lowest rank
// first and leftmost among equals, until no pair has a rank. The ids equal those of Hugging Face
// `tokenizers` (of tiktoken, where the model comes from its files) for the same model.
class ByteLevelBpe final : public AddedTokenEncoder {
 public:
  // The model must be consistent; every byte must be a token. InternalError otherwise: readers of
  // files check before.
  explicit ByteLevelBpe(BpeModel model);
  ByteLevelBpe(const ByteLevelBpe&) = delete;
  ByteLevelBpe& operator=(const ByteLevelBpe&) = delete;

  size_t cut(std::string_view text, size_t from) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(model_.tokens.size()); }
  int32_t text_vocab_size() const override { return text_vocab_size_; }
  int32_t end_of_text() const override { return model_.end_of_text; }
  std::span<const int32_t> document_prefix() const override { return model_.document_prefix; }
  std::string_view token_bytes(int32_t id) const override;
  std::string description() const override;
  uint64_t fingerprint() const override { return fingerprint_; }

  const BpeModel& model() const { return model_; }

 private:
  void index_tokens();
  // Time is O(n log n) for a piece of n bytes, however long. UserError for a piece over 2 GiB.
  void encode_text(const MarkedText& marked, SpecialNames special, std::vector<int32_t>& ids,
                   std::vector<EncodedRun>* runs) const override;
  void encode_stretch(std::string_view text, std::vector<int32_t>& ids) const;
  template <class PieceEnd>
  void encode_pieces(std::string_view text, PieceEnd piece_end, std::vector<int32_t>& ids) const;
  void merge_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  BpeModel model_;
  AddedTokens raw_added_, normalized_added_;
  bool cuts_between_lines_ = true;  // no added token reaches across a line end
  bool cuts_at_returns_ = true;     // nor has one a carriage return
  std::array<int32_t, 256> byte_ids_{};
  PairMerges merges_;
  std::unordered_map<std::string_view, int32_t> whole_;  // for model_.whole_pieces
  uint64_t owner_;                                       // of the threads' piece caches
  uint64_t fingerprint_ = 0;
  int32_t text_vocab_size_ = 0;
};

}  // namespace tessera
