#include "train/training_data.h"

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

// Files of ids that another program made; no path where there is none.
struct TokenPaths {
  std::filesystem::path training, validation;
};
TokenPaths find_token_files(const RunConfig& config) {
  namespace fs = std::filesystem;
  TokenPaths found;
  if (fs::path(config.validation_dataset).extension() == ".bin")
    found.validation = config.validation_dataset;
  if (!config.training_dir.empty() || config.dataset.empty()) return found;
  std::error_code ignored;
  const fs::path dataset = config.dataset;
  if (dataset.extension() == ".bin" && !fs::is_directory(dataset, ignored)) {
    found.training = dataset;
    return found;
  }
  for (const fs::path& directory : {dataset, fs::path(config.dataset_dir) / dataset}) {
    if (!fs::is_regular_file(directory / "train.bin", ignored)) continue;
    found.training = directory / "train.bin";
    if (config.validation_dataset.empty() && config.test_dir.empty() &&
        fs::is_regular_file(directory / "val.bin", ignored))
      found.validation = directory / "val.bin";
    break;
  }
  return found;
}

// Of its size and of parts of it: files of ids are large.
uint64_t sampled_hash(const ByteSource& source) {
  constexpr uint64_t kParts = 64, kPartBytes = 4096;
  Hasher hasher;
  const uint64_t size = source.size();
  hasher.add(&size, sizeof size);
  std::vector<std::byte> bytes(std::min(size, kPartBytes));
  for (uint64_t part = 0; part < kParts; ++part) {
    source.read((size - bytes.size()) / (kParts - 1) * part, bytes);
    hasher.add(bytes.data(), bytes.size());
  }
  return hasher.digest();
}

TokenPart open_token_file(const std::string& what, const std::filesystem::path& path,
                          int64_t vocab_size) {
  auto source = std::make_shared<const ReadFile>(path);
  TokenPart part;
  part.file.emplace(source, vocab_size);
  part.tokens = part.file->tokens();
  part.hash = sampled_hash(*source);
  TESSERA_INFO(cat("Tokens of ", what, ": '", path.string(), "', ",
                   format_count(static_cast<double>(part.tokens.count())), " ids of ",
                   part.file->width(), " bytes"));
  return part;
}

TokenPart synthetic_tokens(const RunConfig& config, int64_t vocab_size, int64_t context) {
  constexpr int64_t kSequences = 100'000;
  const auto seed = static_cast<uint64_t>(config.seed);
  TokenPart part;
  part.synthetic = std::make_unique<SyntheticTokens>(seed, kSequences, context, vocab_size);
  part.tokens = part.synthetic->tokens();
  for (uint64_t number : {seed, static_cast<uint64_t>(context), static_cast<uint64_t>(vocab_size)})
    part.hash = hash_combine(part.hash, number);
  TESSERA_INFO(cat("Synthetic data: ", kSequences, " sequences of ", context, " random tokens"));
  return part;
}

TokenPart of_text(TokenCache cache) {
  TokenPart part;
  part.text = std::move(cache);
  part.tokens = part.text->tokens();
  part.hash = part.text->hash();
  return part;
}

void check_vocabulary(TrainingData& data, int64_t vocab_size) {
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
}

// The last part of the training tokens, where both parts are longer than a window.
void hold_out(double fraction, int64_t context, TokenPart& training, TokenPart& validation) {
  const int64_t count = training.tokens.count();
  int64_t held_out =
      std::max<int64_t>(2, static_cast<int64_t>(fraction * static_cast<double>(count)));
  int64_t kept = count - held_out;
  if (held_out <= context || kept <= context) return;
  validation.tokens = training.tokens.slice(kept, held_out);
  validation.hash = training.hash;
  training.tokens = training.tokens.slice(0, kept);
}

}  // namespace

bool data_need_tokenizer(const RunConfig& config) {
  if (config.use_synthetic_data) return false;
  const TokenPaths files = find_token_files(config);
  const bool held_out_text =
      files.validation.empty() && (!config.validation_dataset.empty() || !config.test_dir.empty());
  return files.training.empty() || held_out_text;
}

bool is_tokenizer_there(const RunConfig& config) {
  std::error_code ignored;
  return config.tokenizer == "byte" || std::filesystem::exists(config.tokenizer, ignored);
}

TrainingData prepare_training_data(const RunConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                                   int64_t vocab_size, int64_t context, ThreadPool& pool) {
  TrainingData data;
  const TokenPaths token_files =
      config.use_synthetic_data ? TokenPaths{} : find_token_files(config);
  const bool reads_text = data_need_tokenizer(config);
  const std::string training_name =
      cat("'", config.training_dir.empty() ? config.dataset : config.training_dir, "'");
  const std::string validation_name = cat(
      "'", config.validation_dataset.empty() ? config.test_dir : config.validation_dataset, "'");
  if (reads_text && token_files.training.empty())
    data.files = find_dataset_files(
        {config.training_dir.empty() ? config.dataset : "", config.training_dir, config.test_dir});
  data.tokenizer = std::move(tokenizer);
  if (!data.tokenizer && (reads_text || is_tokenizer_there(config)))
    data.tokenizer = load_tokenizer(config.tokenizer);
  if (data.tokenizer) check_vocabulary(data, vocab_size);
  auto of_files = [&](const char* what, const std::string& name,
                      const std::vector<std::filesystem::path>& files) {
    return of_text(tokenize(what, name, files, config, *data.tokenizer, pool));
  };

  if (config.use_synthetic_data) {
    data.training = synthetic_tokens(config, vocab_size, context);
  } else if (!token_files.training.empty()) {
    data.training = open_token_file("training data", token_files.training, vocab_size);
  } else if (!data.files.training.empty()) {
    data.training = of_files("training text", training_name, data.files.training);
  }

  if (reads_text && token_files.validation.empty() && !config.validation_dataset.empty()) {
    // Whatever its files are called, all of a directory is held out.
    std::filesystem::path path = config.validation_dataset;
    data.files.validation = std::filesystem::is_directory(path)
                                ? find_dataset_files({{}, {}, path}).validation
                                : find_dataset_files({path, {}, {}}).training;
  } else if (reads_text && !token_files.training.empty() && !config.test_dir.empty()) {
    data.files.validation = find_dataset_files({{}, {}, config.test_dir}).validation;
  }
  if (!token_files.validation.empty()) {
    data.files.validation.clear();
    data.validation = open_token_file("held-out data", token_files.validation, vocab_size);
  } else if (!data.files.validation.empty()) {
    keep_fast_validation(config, data.files.validation);
    data.validation = of_files("validation text", validation_name, data.files.validation);
  } else if (config.validation_fraction > 0 && !config.use_synthetic_data) {
    hold_out(config.validation_fraction, context, data.training, data.validation);
  }

  // Without a tokenizer any id fills up the last window: nothing is predicted there.
  const int32_t end_of_text = data.tokenizer ? data.tokenizer->end_of_text() : 0;
  if (TokenView& tokens = data.training.tokens; tokens.count() > 0) {
    if (config.max_dataset_len && *config.max_dataset_len < tokens.count() / context)
      tokens = tokens.slice(0, *config.max_dataset_len * context + 1);
    data.training_windows.emplace(tokens, context, end_of_text, training_name);
  }
  if (TokenView tokens = data.validation.tokens; tokens.count() > 0) {
    data.validation_windows.emplace(tokens, context, end_of_text, validation_name);
    if (data.validation.text || (data.training.text && !data.validation.file))
      data.validation_bytes = predicted_bytes(tokens, *data.tokenizer);
  }
  return data;
}

}  // namespace tessera
