#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/bpe_model.h"

namespace tessera {

struct BpeTrainerOptions {
  int32_t vocab_size = 8192;  // all tokens: 256 bytes, merges and end of text; at least 257
  int64_t min_frequency = 2;  // a pair seen less often is not merged; at least 1
  int threads = 1;            // the model does not depend on it
  // Called now and then while merging.
  std::function<void(int64_t tokens_done, int64_t tokens_wanted)> progress;
};

// A piece of text (gpt2_pieces.h) and how often it occurs.
struct PieceCount {
  std::string bytes;
  int64_t count;
};

// How often each piece occurs in all documents; in no particular order. `next` puts the next
// document into its argument, and returns false after the last.
std::vector<PieceCount> count_pieces(const std::function<bool(std::string&)>& next, int threads);

// Learns byte-level BPE (Sennrich et al., "Neural Machine Translation of Rare Words with Subword
// Units", 2016, algorithm 1, over bytes): merges the most frequent pair of neighbours, the smallest
// pair of ids among equals, until the vocabulary is full or no pair reaches min_frequency. Token 0
// is end of text, 1..256 are the bytes in the order of their alphabet, then merges in order: the
// merges are those of Hugging Face's BpeTrainer. UserError on options out of range, on no text, and
// on more than 4 GiB of distinct pieces.
BpeModel train_bpe(const std::vector<PieceCount>& pieces, const BpeTrainerOptions& options);
BpeModel train_bpe(const std::function<bool(std::string&)>& next, const BpeTrainerOptions& options);

}  // namespace tessera
