#include "train/own_tokenizer.h"

#include <algorithm>
#include <cctype>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "data/token_cache.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tokenizer_json.h"
#include "train/token_parts.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kBegin = "tokenizer-", kEnd = ".json";

DocumentReaderOptions reading(const RunConfig& config) {
  return reading_options(config, RecordKind::kText, 0);
}

bool can_be_read(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return false;
  try {
    load_tokenizer(path);
    return true;
  } catch (const UserError& error) {
    TESSERA_WARN(cat(error.what(), ": it is made again"));
    return false;
  }
}

// Parts of the text of files: of each so many bytes as its share of all is.
class Sample {
 public:
  Sample(std::vector<RemoteEntry> files, const DocumentReaderOptions& options)
      : files_(std::move(files)), options_(options) {
    for (const RemoteEntry& file : files_) total_ += file.size;
  }

  bool next(std::string& text) {
    check_interruption();
    while (true) {
      if (!reader_) {
        if (file_ == files_.size()) return false;
        const RemoteEntry& file = files_[file_++];
        const double share =
            static_cast<double>(file.size) / static_cast<double>(std::max<uint64_t>(1, total_));
        left_ = static_cast<int64_t>(share * static_cast<double>(kTokenizerSampleBytes)) + 1;
        reader_.emplace(std::vector{file}, options_);
      }
      if (left_ > 0 && reader_->next_part(text) != TextPart::kNone) break;
      reader_.reset();
    }
    // Behind a line end, so that no word is cut.
    if (static_cast<int64_t>(text.size()) > left_) {
      const size_t end = text.find('\n', static_cast<size_t>(left_));
      if (end != std::string::npos) text.resize(end + 1);
    }
    left_ -= static_cast<int64_t>(text.size());
    bytes_ += static_cast<int64_t>(text.size());
    return true;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<RemoteEntry> files_;
  DocumentReaderOptions options_;
  std::optional<DocumentReader> reader_;  // of the file before file_
  size_t file_ = 0;
  uint64_t total_ = 0;
  int64_t left_ = 0, bytes_ = 0;
};

}  // namespace

fs::path own_tokenizer_path(const RunConfig& config, std::span<const RemoteEntry> files) {
  const uint64_t kind =
      hash_combine(hash_text("tessera own tokenizer 1"), static_cast<uint64_t>(config.vocab_size));
  const uint64_t hash = dataset_fingerprint(files, reading(config), kind);
  return fs::path(config.cache_dir) / cat(kBegin, hex(hash), kEnd);
}

bool is_own_tokenizer(const RunConfig& config) {
  const std::string name = fs::path(config.tokenizer).filename().string();
  if (name.size() != kBegin.size() + hex(uint64_t{0}).size() + kEnd.size()) return false;
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  return std::all_of(name.begin() + kBegin.size(), name.end() - kEnd.size(),
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

void make_own_tokenizer(const RunConfig& config, int threads) {
  if (!is_own_tokenizer(config)) return;
  if (can_be_read(config.tokenizer)) {
    TESSERA_INFO(cat("Tokenizer: ", config.tokenizer, ", made for this text before"));
    return;
  }
  const std::vector<RemoteEntry> files =
      find_dataset_files({.dataset = config.dataset, .config = config.dataset_config_name})
          .training;
  if (own_tokenizer_path(config, files) != config.tokenizer) {
    throw UserError(cat("--tokenizer ", config.tokenizer, " is not there, and '", config.dataset,
                        "' is not the text that it was made of: leave out --tokenizer and the "
                        "model's options to get one for this text, or give another"));
  }
  make_cache_directory(config);
  const double start = monotonic_seconds();
  Sample sample(files, reading(config));
  BpeTrainerOptions options;
  options.vocab_size = static_cast<int32_t>(config.vocab_size);
  options.threads = threads;
  options.progress = [](int64_t, int64_t) { check_interruption(); };
  const ByteLevelBpe tokenizer(
      train_bpe([&](std::string& text) { return sample.next(text); }, options));
  write_tokenizer_json(config.tokenizer, tokenizer.model());
  TESSERA_INFO(cat("Tokenizer: ", config.tokenizer, ", ", tokenizer.description(), ", made of ",
                   format_count(static_cast<double>(sample.bytes())), "B of this text in ",
                   format("%.1f", monotonic_seconds() - start), " s"));
}

}  // namespace tessera
