#include "train/token_parts.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/ignore_index.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "data/best_fit_dataset.h"
#include "data/packed_dataset.h"
#include "data/row_dataset.h"
#include "options/remote_options.h"
#include "remote/source.h"

namespace tessera {
namespace {

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

TokenPart of_cache(TokenCache cache, RecordKind kind) {
  TokenPart part;
  part.cache = std::move(cache);
  part.tokens = part.cache->tokens();
  part.documents = part.cache->document_view();
  part.kind = kind;
  part.hash = part.cache->hash();
  return part;
}

// Only the first samples of another source.
class FirstSamples final : public SampleSource {
 public:
  FirstSamples(std::shared_ptr<const SampleSource> all, int64_t count)
      : all_(std::move(all)), count_(count) {}
  int64_t context() const override { return all_->context(); }
  int32_t filler() const override { return all_->filler(); }
  int64_t samples() const override { return count_; }
  int64_t sample(int64_t i, const SampleRow& row) const override { return all_->sample(i, row); }

 private:
  std::shared_ptr<const SampleSource> all_;
  int64_t count_;
};

}  // namespace

DocumentReaderOptions reading_options(const RunConfig& config, RecordKind kind,
                                      int64_t vocab_size) {
  return {.skip_bad_lines = config.on_bad_line == "skip",
          .text_field = config.text_field.empty() ? "text" : config.text_field,
          .text_is_wanted = !config.text_field.empty(),
          .warned = std::make_shared<std::atomic<bool>>(),
          .kind = kind,
          .vocab_size = vocab_size,
          .remote = remote_options(config)};
}

void make_cache_directory(const RunConfig& config) {
  std::string failure;
  try {
    make_directories(config.cache_dir);
    if (::access(config.cache_dir.c_str(), W_OK) != 0)
      failure = cat("cannot write to '", config.cache_dir, "': ", std::strerror(errno));
  } catch (const UserError& error) {
    failure = error.what();
  }
  if (!failure.empty())
    throw UserError(cat("--cache_dir: ", failure, "; give a directory that can be written"));
}

std::optional<RecordKind> kind_of_files(const RunConfig& config,
                                        const std::vector<RemoteEntry>& files) {
  if (files.empty() || files.front().path.ends_with(".bin")) return std::nullopt;
  return detect_kind(files, reading_options(config, RecordKind::kText, 0));
}

TokenPart open_token_part(const std::string& what, const std::string& name,
                          const std::vector<RemoteEntry>& files, RecordKind kind,
                          const RunConfig& config, const TrainingData& data, int64_t vocab_size,
                          ThreadPool& pool) {
  const DocumentReaderOptions options = reading_options(config, kind, vocab_size);
  const uint64_t made_by = kind == RecordKind::kIds    ? 0
                           : kind == RecordKind::kChat ? data.encoder->fingerprint()
                                                       : data.tokenizer->fingerprint();
  const uint64_t fingerprint = dataset_fingerprint(files, options, made_by);
  const std::filesystem::path path =
      std::filesystem::path(config.cache_dir) / cat("tokens-", hex(fingerprint), ".bin");
  if (auto cache = open_token_cache(path, fingerprint)) return of_cache(std::move(*cache), kind);
  make_cache_directory(config);
  remove_leftovers_of(path);
  DocumentReader reader(files, options);
  const double start = monotonic_seconds();
  double shown = start;
  const int64_t words = kind == RecordKind::kIds
                            ? vocab_size
                            : std::min<int64_t>(vocab_size, data.tokenizer->vocab_size());
  TokenCacheJob job{encoding_of(kind, data.tokenizer.get(), data.encoder.get(), words)};
  if (kind == RecordKind::kText)
    job.documents = [&](std::string& text) { return reader.next_part(text); };
  else
    job.records = [&](Record& record) { return reader.next(record); };
  job.name = name;
  job.fingerprint = fingerprint;
  job.progress = [&](const TokenCacheProgress& p) {
    const double now = monotonic_seconds();
    if (now - shown < 2) return;
    shown = now;
    const double done = static_cast<double>(reader.bytes_read()) /
                        static_cast<double>(std::max<int64_t>(1, reader.bytes_total()));
    TESSERA_INFO(cat("Tokenizing ", what, ": ", format("%.0f", 100 * done), "%, ",
                     format("%.1f", static_cast<double>(p.text_bytes) / 1e6 / (now - start)),
                     " MB/s, left ",
                     format_duration(done > 0 ? (now - start) * (1 - done) / done : -1)));
  };
  TokenCache cache = build_token_cache(path, job, pool);
  if (reader.bad_lines() > 0)
    TESSERA_WARN(cat(reader.bad_lines(), " broken lines of ", what, " were left out"));
  const std::string size =
      cache.text_bytes() > 0
          ? cat(format_count(static_cast<double>(cache.text_bytes())), "B of text, ")
          : "";
  TESSERA_INFO(cat("Tokenized ", what, ": ", size, cache.documents(), " documents, ",
                   format_count(static_cast<double>(cache.tokens().count())), " tokens in ",
                   format("%.1f", monotonic_seconds() - start), " s"));
  return of_cache(std::move(cache), kind);
}

TokenPart open_token_file(const std::string& what, const std::vector<RemoteEntry>& files,
                          const RunConfig& config, int64_t vocab_size) {
  if (files.size() != 1) {
    throw UserError(cat(files.size(), " .bin files ('", files[0].path, "', '", files[1].path,
                        "') are given as one data set; give one, or mix them with --dataset_mix"));
  }
  const std::shared_ptr<const ByteSource> source = open_source(files[0], remote_options(config));
  TokenPart part;
  part.file.emplace(source, vocab_size);
  part.tokens = part.file->tokens();
  part.kind = RecordKind::kIds;
  part.hash = sampled_hash(*source);
  TESSERA_INFO(cat("Tokens of ", what, ": '", shown_name(files[0]), "', ",
                   format_count(static_cast<double>(part.tokens.count())), " ids of ",
                   part.file->width(), " bytes"));
  return part;
}

PreparedParts open_prepared_parts(const std::string& directory, const Tokenizer* tokenizer,
                                  int64_t vocab_size) {
  auto data = std::make_shared<const PreparedDataset>(open_prepared_dataset(directory));
  const PreparedManifest& manifest = data->manifest;
  // Of texts alone, of which no special token is.
  const bool texts = tokenizer && tokenizer->vocab_size() == manifest.vocab_size &&
                     manifest.window == 0 && data->training.all_learned() &&
                     data->validation.all_learned();
  if ((texts ? tokenizer->text_vocab_size() : manifest.vocab_size) > vocab_size) {
    throw UserError(cat("'", directory, "' was prepared with a vocabulary of ", manifest.vocab_size,
                        " ids, the model's has only ", vocab_size, ": give --vocab_size ",
                        manifest.vocab_size, " or more"));
  }
  if (tokenizer && manifest.tokenizer_fingerprint != 0 &&
      tokenizer->fingerprint() != manifest.tokenizer_fingerprint) {
    throw UserError(cat("'", directory, "' was prepared with the tokenizer ", manifest.tokenizer,
                        ", --tokenizer is another one: give that one, or prepare the data again"));
  }
  auto part_of = [&](const PreparedTokens& tokens) {
    TokenPart part;
    part.prepared = data;
    part.tokens = tokens.tokens();
    part.documents = tokens.document_view();
    part.are_documents = manifest.window == 0;
    // Rows of one length, and conversations, are samples as they are.
    const bool rows = manifest.window > 0 || !tokens.all_learned();
    part.kind = rows ? RecordKind::kIds : RecordKind::kText;
    part.hash = tokens.hash();
    return part;
  };
  TESSERA_INFO(cat("Prepared data: '", directory, "', ",
                   format_count(static_cast<double>(data->training.tokens().count())),
                   " tokens in ", data->training.documents(), " documents"));
  return {part_of(data->training), part_of(data->validation)};
}

TokenPart synthetic_part(const RunConfig& config, int64_t vocab_size, int64_t context) {
  constexpr int64_t kSequences = 100'000;
  const auto seed = static_cast<uint64_t>(config.seed);
  TokenPart part;
  part.synthetic = std::make_unique<SyntheticTokens>(seed, kSequences, context, vocab_size);
  part.tokens = part.synthetic->tokens();
  part.kind = RecordKind::kIds;
  for (uint64_t number : {seed, static_cast<uint64_t>(context), static_cast<uint64_t>(vocab_size)})
    part.hash = hash_combine(part.hash, number);
  TESSERA_INFO(cat("Synthetic data: ", kSequences, " sequences of ", context, " random tokens"));
  return part;
}

std::optional<Packing> given_packing(const RunConfig& config) {
  if (config.packing == "auto") return std::nullopt;
  if (config.packing == "concatenate") return Packing::kConcatenate;
  return config.packing == "best_fit" ? Packing::kBestFit : Packing::kRows;
}

Packing packing_of(const RunConfig& config, const TokenPart& part) {
  const bool has_documents = part.cache || part.prepared;
  const bool has_rows = has_documents && part.kind != RecordKind::kText;
  const Packing packing =
      given_packing(config).value_or(has_rows ? Packing::kRows : Packing::kConcatenate);
  if (packing != Packing::kConcatenate && !has_documents) {
    throw UserError(cat("--packing ", config.packing,
                        " wants to know where documents begin, which .bin files and synthetic "
                        "data do not say; leave it out"));
  }
  return packing;
}

std::shared_ptr<const SampleSource> samples_of(const TokenPart& part, Packing packing,
                                               int64_t context, int32_t filler,
                                               const RunConfig& config, const std::string& name,
                                               std::vector<std::string>& warnings) {
  std::shared_ptr<const SampleSource> samples;
  if (packing == Packing::kConcatenate) {
    samples = std::make_shared<PackedDataset>(part.tokens, context, filler, name,
                                              part.are_documents ? part.documents : DocumentView());
  } else if (packing == Packing::kBestFit) {
    auto packed =
        std::make_shared<BestFitDataset>(part.tokens, part.documents, context, filler, name);
    TESSERA_INFO(cat("Packed ", part.documents.count(), " documents of ", name, " into ",
                     packed->samples(), " windows, ", format("%.1f", 100 * packed->padding()),
                     "% of them padding; ", packed->cut_documents(),
                     " documents are longer than a window"));
    samples = std::move(packed);
  } else {
    auto rows = std::make_shared<RowDataset>(part.tokens, part.documents, context, filler,
                                             static_cast<uint64_t>(config.seed), name);
    if (std::string warning = rows->warning(); !warning.empty()) warnings.push_back(warning);
    samples = std::move(rows);
  }
  if (config.max_dataset_len && *config.max_dataset_len < samples->samples())
    samples = std::make_shared<FirstSamples>(std::move(samples), *config.max_dataset_len);
  return samples;
}

void hold_out(double fraction, Packing packing, int64_t context, TokenPart& training,
              TokenPart& validation) {
  if (packing == Packing::kConcatenate) {
    const int64_t count = training.tokens.count();
    const int64_t held_out =
        std::max<int64_t>(2, static_cast<int64_t>(fraction * static_cast<double>(count)));
    const int64_t kept = count - held_out;
    if (held_out <= context || kept <= context) return;
    validation.tokens = training.tokens.slice(kept, held_out);
    validation.documents = training.documents;
    training.tokens = training.tokens.slice(0, kept);
  } else {
    const int64_t count = training.documents.count();
    const auto held_out = static_cast<int64_t>(fraction * static_cast<double>(count));
    if (held_out < 1 || held_out >= count) return;
    validation.tokens = training.tokens;
    validation.documents = training.documents.slice(count - held_out, held_out);
    training.documents = training.documents.slice(0, count - held_out);
  }
  validation.kind = training.kind;
  validation.are_documents = training.are_documents;
  validation.hash = training.hash;
}

bool has_targets(TokenView tokens) {
  if (tokens.all_learned()) return true;
  std::vector<int32_t> targets(static_cast<size_t>(std::min<int64_t>(tokens.count(), 1 << 16)));
  for (int64_t begin = 0; begin < tokens.count(); begin += std::ssize(targets)) {
    check_interruption();
    targets.resize(static_cast<size_t>(std::min(tokens.count() - begin, std::ssize(targets))));
    tokens.copy_targets(begin, targets);
    if (!std::ranges::all_of(targets, [](int32_t id) { return id == kIgnoreIndex; })) return true;
  }
  return false;
}

std::string missing_answers(const std::vector<RemoteEntry>& files, RecordKind kind,
                            const RunConfig& config) {
  constexpr int kLooked = 1000;
  constexpr size_t kNamed = 8;
  if (kind != RecordKind::kChat || files.empty()) return "";
  std::vector<std::string> roles;
  DocumentReader reader(files, reading_options(config, kind, 0));
  Record record;
  for (int i = 0; i < kLooked && reader.next(record); ++i) {
    for (const Message& message : record.messages) {
      if (message.role == "assistant") return "";
      const std::string role = cat("'", message.role.substr(0, 60), "'");
      if (roles.size() < kNamed && std::ranges::find(roles, role) == roles.end())
        roles.push_back(role);
    }
  }
  if (roles.empty()) return "";
  return cat(" Of conversations the messages of the role 'assistant' are learned; these have the ",
             "roles ", join(roles, ", "), ": rename that of the answers.");
}

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

}  // namespace tessera
