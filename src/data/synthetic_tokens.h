#pragma once
#include <cstdint>

#include "data/token_view.h"

namespace tessera {

// `sequences` times `context` uniform ids below the vocabulary, one sequence after the other, made
// when they are read. Id p of sequence s is a function of (seed, s, p) and the vocabulary alone, so
// any rank reads its own rows, and a longer context begins with the same ids. PackedDataset cuts
// them into windows that are the sequences; the last id of each predicts the first of the next, and
// that of the last none.
class SyntheticTokens final : public TokenStore {
 public:
  // 0 < sequences, 0 < context < 2^31, 0 < vocab_size <= 2^31, sequences * context < 2^62.
  SyntheticTokens(uint64_t seed, int64_t sequences, int64_t context, int64_t vocab_size);

  TokenView tokens() const { return {*this, sequences_ * context_}; }
  void read(int64_t begin, std::span<int32_t> out) const override;

 private:
  uint64_t seed_;
  int64_t sequences_, context_, vocab_size_;
};

}  // namespace tessera
