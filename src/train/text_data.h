#pragma once
#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "data/dataset_files.h"
#include "data/packed_dataset.h"
#include "data/token_cache.h"
#include "options/run_config.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// The text of a job as tokens: files found, tokenized into caches (or taken from them), cut into
// windows.
struct TextData {
  std::unique_ptr<Tokenizer> tokenizer;
  DatasetFiles files;
  std::optional<TokenCache> training_cache, validation_cache;
  // Without validation files the last --validation_fraction of the training tokens is held out.
  TokenView training, validation;
  std::vector<std::string> warnings;  // the same on all ranks: one of them gives them
  int64_t validation_bytes = 0;       // of text behind the predicted validation tokens

  std::optional<PackedDataset> training_windows, validation_windows;
};

// `tokenizer` is that of --tokenizer, which is opened if it is null. With --fast_validation the
// last of several validation files stands for all. UserError: no data, a tokenizer that does not
// fit --vocab_size, a context longer than the data, and what the readers report.
TextData prepare_text(const RunConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                      int64_t vocab_size, int64_t context, ThreadPool& pool);

}  // namespace tessera
