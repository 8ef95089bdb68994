#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/dataset_files.h"
#include "data/packed_dataset.h"
#include "data/synthetic_tokens.h"
#include "data/token_cache.h"
#include "data/token_file.h"
#include "options/run_config.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Tokens to train on, or held out, and what holds them: one of the three.
struct TokenPart {
  std::optional<TokenCache> text;
  std::optional<TokenFile> file;
  std::unique_ptr<const SyntheticTokens> synthetic;
  TokenView tokens;   // all that is held, or some of it; none where there is nothing
  uint64_t hash = 0;  // of all that is held
};

// The data of a job as tokens cut into windows.
struct TrainingData {
  std::unique_ptr<Tokenizer> tokenizer;  // null where the data are ids and there is none
  DatasetFiles files;                    // of text
  TokenPart training, validation;
  std::vector<std::string> warnings;  // the same on all ranks: one of them gives them
  int64_t validation_bytes = 0;       // of text behind the predicted validation tokens

  std::optional<PackedDataset> training_windows, validation_windows;
};

// Whether --tokenizer is needed to read the data: not for ids.
bool data_need_tokenizer(const RunConfig& config);
// Whether --tokenizer names one that can be opened.
bool is_tokenizer_there(const RunConfig& config);

// --use_synthetic_data: random tokens, 100,000 sequences, and nothing is held out. Else a --dataset
// that is a .bin file, or a directory with train.bin (its own path, or --dataset_dir/--dataset), is
// ids, with val.bin beside it held out; else it is text, found, tokenized into caches (or taken
// from them). Without files to validate on, the last --validation_fraction of the training tokens
// is held out. `tokenizer` is that of --tokenizer, which is opened if it is null and needed or
// there. With --fast_validation the last of several validation files stands for all.
// --max_dataset_len keeps the first so many training windows. UserError: no data, a tokenizer that
// does not fit --vocab_size, a context longer than the data, and what the readers report.
TrainingData prepare_training_data(const RunConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                                   int64_t vocab_size, int64_t context, ThreadPool& pool);

}  // namespace tessera
