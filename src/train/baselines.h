#pragma once
#include <cstdint>

#include "data/document_reader.h"
#include "data/token_view.h"

namespace tessera {

// What simple models make of held-out text: bits for each byte of it, to set beside the trained
// model's loss (sum of -log2 p over the predicted tokens / bytes of text).
struct Baselines {
  double unigram_bits_per_byte = 0;
  double bigram_bits_per_byte = 0;
  double gzip_bits_per_byte = 0;
};

constexpr int64_t kBaselineBytesPerToken = 8;

// Estimates both models on `training` and measures them on every token of `validation` but the
// first, as the trained model is; V = vocab_size, c = counts in the training tokens, N of them.
//  - Unigram: p(b) = (c(b) + 1/2) / (N + V/2).
//  - Bigram, interpolated Kneser-Ney (Chen and Goodman, "An empirical study of smoothing techniques
//    for language modeling", Harvard TR-10-98), its lower order smoothed by adding 1/2:
//      p(b|a) = (max(c(ab) - D, 0) + D F(a) q(b)) / c(a),   q(b) = (P(b) + 1/2) / (sum P + V/2),
//    F(a) = distinct tokens that follow a, P(b) = distinct tokens that precede b,
//    D = (n1 + 1) / (n1 + 2 n2 + 2), n1 and n2 = pairs seen once and twice. p(b|a) = q(b) if a is
//    new.
//  - gzip: 8 * size after zlib at level 9 / size, over the documents' text one behind the other,
//    streamed; the boundaries, which the models do predict, are not in it.
// `validation_text` gives the documents of which `validation` are the tokens.
// Time: about 0.1 s for each million training tokens; memory: at most kBaselineBytesPerToken for
// each.
// UserError if the validation text is empty. Interrupted when that is requested.
Baselines measure_baselines(TokenView training, TokenView validation, int64_t vocab_size,
                            const DocumentSource& validation_text);

}  // namespace tessera
