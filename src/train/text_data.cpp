#include "train/text_data.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

// `what` it is and where the user `said` it is, for messages.
TokenCache tokenize(const std::string& what, const std::string& said,
                    const std::vector<std::filesystem::path>& files, const RunConfig& config,
                    const Tokenizer& tokenizer, ThreadPool& pool) {
  DocumentReaderOptions options{config.on_bad_line == "skip"};
  uint64_t fingerprint = dataset_fingerprint(files, options, tokenizer.fingerprint());
  make_directories(config.cache_dir);
  std::filesystem::path path =
      std::filesystem::path(config.cache_dir) / cat("tokens-", hex(fingerprint), ".bin");
  if (auto cache = open_token_cache(path, fingerprint)) return std::move(*cache);
  DocumentReader reader(files, options);
  double start = monotonic_seconds(), shown = start;
  TokenCacheJob job;
  job.name = said;
  job.fingerprint = fingerprint;
  job.vocab_size = tokenizer.vocab_size();
  std::span<const int32_t> prefix = tokenizer.document_prefix();
  job.document_prefix.assign(prefix.begin(), prefix.end());
  job.end_of_text = tokenizer.end_of_text();
  job.documents = [&](std::string& text) { return reader.next_part(text); };
  job.encode = [&](std::string_view text, std::vector<int32_t>& ids) {
    tokenizer.encode(text, ids);
  };
  job.cut = [&](std::string_view text, size_t from) { return tokenizer.cut(text, from); };
  job.progress = [&](const TokenCacheProgress& p) {
    double now = monotonic_seconds();
    if (now - shown < 2) return;
    shown = now;
    double done = static_cast<double>(reader.bytes_read()) /
                  static_cast<double>(std::max<int64_t>(1, reader.bytes_total()));
    TESSERA_INFO(cat("Tokenizing ", what, ": ", format("%.0f", 100 * done), "%, ",
                     format("%.1f", static_cast<double>(p.text_bytes) / 1e6 / (now - start)),
                     " MB/s, left ",
                     format_duration(done > 0 ? (now - start) * (1 - done) / done : -1)));
  };
  TokenCache cache = build_token_cache(path, job, pool);
  TESSERA_INFO(cat("Tokenized ", what, ": ", format_count(static_cast<double>(cache.text_bytes())),
                   "B of text, ", cache.documents(), " documents, ",
                   format_count(static_cast<double>(cache.tokens().count())), " tokens in ",
                   format("%.1f", monotonic_seconds() - start), " s"));
  return cache;
}

// Bytes that the tokens from the second on stand for: those around a document stand for none.
int64_t predicted_bytes(TokenView tokens, const Tokenizer& tokenizer) {
  std::vector<int64_t> sizes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    sizes.push_back(static_cast<int64_t>(tokenizer.token_bytes(id).size()));
  }
  sizes[static_cast<size_t>(tokenizer.end_of_text())] = 0;
  for (int32_t id : tokenizer.document_prefix()) sizes[static_cast<size_t>(id)] = 0;
  int64_t bytes = 0;
  tokens.slice(1, tokens.count() - 1).for_each([&](int32_t id) {
    bytes += sizes[static_cast<size_t>(id)];
  });
  return bytes;
}

void keep_fast_validation(const RunConfig& config, std::vector<std::filesystem::path>& files) {
  if (!config.fast_validation || files.size() < 2) return;
  TESSERA_INFO(cat("Validation text: '", files.back().string(), "', the last of ", files.size(),
                   " files; --fast_validation 0 takes all"));
  files.erase(files.begin(), files.end() - 1);
}

}  // namespace

TextData prepare_text(const RunConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                      int64_t vocab_size, int64_t context, ThreadPool& pool) {
  TextData data;
  data.files = find_dataset_files(
      {config.training_dir.empty() ? config.dataset : "", config.training_dir, config.test_dir});
  data.tokenizer = tokenizer ? std::move(tokenizer) : load_tokenizer(config.tokenizer);
  int64_t words = data.tokenizer->vocab_size();
  if (words > vocab_size) {
    throw UserError(cat("the tokenizer has ", words, " ids, the model's vocabulary only ",
                        vocab_size, ": give --vocab_size ", words, " or more"));
  }
  if (words < vocab_size) {
    data.warnings.push_back(cat("the model's vocabulary has ", vocab_size,
                                " rows, the tokenizer only ", words,
                                " ids: the other rows are never used"));
  }
  std::string training_name =
      cat("'", config.training_dir.empty() ? config.dataset : config.training_dir, "'");
  std::string validation_name = cat(
      "'", config.validation_dataset.empty() ? config.test_dir : config.validation_dataset, "'");
  if (!data.files.training.empty()) {
    data.training_cache = tokenize("training text", training_name, data.files.training, config,
                                   *data.tokenizer, pool);
    data.training = data.training_cache->tokens();
  }
  if (!config.validation_dataset.empty()) {
    // Whatever its files are called, all of a directory is held out.
    std::filesystem::path path = config.validation_dataset;
    data.files.validation = std::filesystem::is_directory(path)
                                ? find_dataset_files({{}, {}, path}).validation
                                : find_dataset_files({path, {}, {}}).training;
  }
  keep_fast_validation(config, data.files.validation);
  if (!data.files.validation.empty()) {
    data.validation_cache = tokenize("validation text", validation_name, data.files.validation,
                                     config, *data.tokenizer, pool);
    data.validation = data.validation_cache->tokens();
  } else if (config.validation_fraction > 0) {
    int64_t held_out =
        std::max<int64_t>(2, static_cast<int64_t>(config.validation_fraction *
                                                  static_cast<double>(data.training.count())));
    int64_t kept = data.training.count() - held_out;
    if (held_out > context && kept > context) {
      data.validation = data.training.slice(kept, held_out);
      data.training = data.training.slice(0, kept);
    }
  }
  if (data.training.count() > 0)
    data.training_windows.emplace(data.training, context, data.tokenizer->end_of_text(),
                                  training_name);
  if (data.validation.count() > 0) {
    data.validation_windows.emplace(data.validation, context, data.tokenizer->end_of_text(),
                                    validation_name);
    data.validation_bytes = predicted_bytes(data.validation, *data.tokenizer);
  }
  return data;
}

}  // namespace tessera
