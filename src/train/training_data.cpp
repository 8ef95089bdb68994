#include "train/training_data.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "data/find_chat_template.h"
#include "data/mixed_dataset.h"
#include "data/special_names.h"
#include "data/stream_reader.h"
#include "train/token_parts.h"

namespace tessera {
namespace {

// Above this a data set on a server is read as a stream, unless the options say.
constexpr uint64_t kFetchedWhole = uint64_t{1} << 30;

// Documents of a lane among which those that fit are looked for. With 16 of them, of lengths as
// C4's, 4 % of windows of 512 tokens are filled up, with 64 1.4 %, with 256 0.8 %.
constexpr int64_t kBestFitBuffer = 64;

void check_vocabulary(TrainingData& data, int64_t vocab_size) {
  const int64_t words = data.tokenizer->vocab_size();
  if (data.tokenizer->text_vocab_size() > vocab_size) {
    throw UserError(cat("the tokenizer has ", words, " ids, the model's vocabulary only ",
                        vocab_size, ": give --vocab_size ", words, " or more"));
  }
  if (words > vocab_size) {
    data.warnings.push_back(cat("the tokenizer has ", words, " ids, the model's vocabulary ",
                                vocab_size, " rows: special tokens from '",
                                data.tokenizer->token_bytes(static_cast<int32_t>(vocab_size)),
                                "' on are none of the model's"));
  }
  if (words < vocab_size) {
    data.warnings.push_back(cat("the model's vocabulary has ", vocab_size,
                                " rows, the tokenizer only ", words,
                                " ids: the other rows are never used"));
  }
}

// Files of ids (they have no kind) are read where they are, as far as they are needed.
bool reads_streams(const RunConfig& config, const std::vector<DataSource>& sources,
                   const std::vector<std::optional<RecordKind>>& kinds) {
  if (config.streaming != "auto") return config.streaming == "on";
  uint64_t remote_bytes = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!kinds[i]) continue;
    for (const RemoteEntry& file : sources[i].files.training)
      if (is_remote(file)) remote_bytes += file.size;
  }
  return remote_bytes > kFetchedWhole;
}

void keep_fast_validation(const RunConfig& config, std::vector<RemoteEntry>& files) {
  if (!config.fast_validation || files.size() < 2) return;
  auto last = std::find_if(files.rbegin(), files.rend(),
                           [](const RemoteEntry& file) { return file.size > 0; });
  RemoteEntry kept = last == files.rend() ? files.back() : *last;
  TESSERA_INFO(cat("Validation data: '", shown_name(kept), "', the last of ", files.size(),
                   " files; --fast_validation 0 takes all"));
  files = {std::move(kept)};
}

// Ids as they are, of data that need no tokenizer.
void copy_ids(const Record& record, TokenDocument& out) {
  out.ids = record.ids;
  for (size_t i = 0; i < record.labels.size(); ++i)
    out.learned.push_back(record.labels[i] != kIgnoreIndex);
}

StreamSettings stream_settings(const RunConfig& config, const TrainingData& data,
                               const std::vector<std::optional<RecordKind>>& kinds,
                               int64_t vocab_size, int64_t context) {
  StreamSettings stream;
  stream.lanes = config.data_lanes;
  stream.context = context;
  stream.buffer = std::max<int64_t>(1, (config.shuffle_buffer + stream.lanes - 1) / stream.lanes);
  stream.epochs = config.epochs;
  stream.seed = static_cast<uint64_t>(config.seed);
  stream.filler = data.tokenizer ? data.tokenizer->end_of_text() : 0;
  const bool has_text = std::ranges::find(kinds, RecordKind::kText) != kinds.end();
  stream.packing =
      given_packing(config).value_or(has_text ? Packing::kConcatenate : Packing::kRows);
  if (stream.packing == Packing::kBestFit) stream.buffer = std::max(stream.buffer, kBestFitBuffer);
  stream.epoch_windows = config.max_dataset_len.value_or(0);
  for (size_t i = 0; i < data.sources.size(); ++i) {
    if (!kinds[i]) {
      throw UserError(cat("'", data.sources[i].name,
                          "' is a file of token ids, which is read in any order: leave "
                          "--streaming out"));
    }
    StreamSettings::Source source;
    source.files = data.sources[i].files.training;
    source.weight = data.sources[i].weight;
    source.name = data.sources[i].name;
    source.reading = reading_options(config, *kinds[i], vocab_size);
    // Each lane has a file open: what it keeps of it is small, and threads read ahead.
    source.reading.remote.block_bytes = uint64_t{1} << 20;
    source.reading.remote.blocks_in_memory = 1;
    source.reading.remote.read_ahead = false;
    if (*kinds[i] == RecordKind::kIds) {
      source.encode = copy_ids;
    } else {
      source.encode = [encoder = data.encoder.get()](const Record& record, TokenDocument& out) {
        encoder->encode(record, out.ids, out.learned);
        if (std::ranges::find(out.learned, 0) == out.learned.end()) out.learned.clear();
      };
    }
    stream.sources.push_back(std::move(source));
  }
  return stream;
}

std::string shown(const DataSource& source) { return cat("'", source.name, "'"); }

// The steps of prepare_training_data().
class DataPreparation {
 public:
  DataPreparation(const RunConfig& config, std::vector<DataSource> sources,
                  std::unique_ptr<Tokenizer> tokenizer, int64_t vocab_size, int64_t context,
                  ThreadPool& pool)
      : config_(config), vocab_size_(vocab_size), context_(context), pool_(pool) {
    data_.sources = std::move(sources);
    data_.tokenizer = std::move(tokenizer);
    for (const DataSource& source : data_.sources)
      kinds_.push_back(kind_of_files(config, source.files.training));
    streams_ = reads_streams(config, data_.sources, kinds_);
  }

  TrainingData build() {
    choose_held_out();
    open_tokenizer();
    open_validation();
    open_training();
    cut_training();
    cut_validation();
    return std::move(data_);
  }

 private:
  void choose_held_out() {
    std::vector<DataSource>& sources = data_.sources;
    if (!sources.empty()) prepared_validation_ = sources[0].prepared_validation;
    for (DataSource& source : sources) {
      std::vector<RemoteEntry>& files = source.files.validation;
      if (!prepared_validation_.empty()) files.clear();
      held_out_.insert(held_out_.end(), files.begin(), files.end());
    }
    if (streams_ && !has_validation(sources) && !sources.empty()) {
      if (!hold_out_files(config_.validation_fraction, sources[0]))
        TESSERA_INFO("Nothing is held out of the stream; give --validation_dataset to validate");
      held_out_ = sources[0].files.validation;
    } else {
      keep_fast_validation(config_, held_out_);
    }
    held_out_kind_ = kind_of_files(config_, held_out_);
  }

  template <class Wanted>
  bool any_kind(const Wanted& wanted) const {
    return std::ranges::any_of(kinds_, wanted) || wanted(held_out_kind_);
  }

  void open_tokenizer() {
    const bool reads_text = any_kind([](auto kind) { return kind && *kind != RecordKind::kIds; });
    if (!data_.tokenizer && (reads_text || is_tokenizer_there(config_)))
      data_.tokenizer = load_tokenizer(config_.tokenizer);
    if (!data_.tokenizer) return;
    filler_ = data_.tokenizer->end_of_text();
    check_vocabulary(data_, vocab_size_);
    std::optional<ChatTemplate> chat;
    if (any_kind([](auto kind) { return kind == RecordKind::kChat; }))
      chat = find_chat_template(config_.tokenizer, *data_.tokenizer, config_.chat_template);
    if (chat) warn(answer_end_warning(*data_.tokenizer, *chat));
    data_.encoder = std::make_unique<RecordEncoder>(*data_.tokenizer, std::move(chat), vocab_size_);
    for (size_t i = 0; i < kinds_.size() && !config_.eval_only; ++i) {
      if (!kinds_[i] || *kinds_[i] == RecordKind::kIds) continue;
      const DataSource& source = data_.sources[i];
      warn(
          special_name_warning(source.files.training,
                               reading_options(config_, *kinds_[i], vocab_size_), *data_.tokenizer),
          cat(shown(source), " "));
    }
  }

  void open_validation() {
    const std::string& option =
        config_.validation_dataset.empty() ? config_.test_dir : config_.validation_dataset;
    validation_name_ = option.empty() && !data_.sources.empty()
                           ? cat(shown(data_.sources[0]), " (its validation data)")
                           : cat("'", option, "'");
    if (!held_out_.empty()) {
      data_.validation = open_part("validation text", validation_name_, held_out_, held_out_kind_);
      data_.validation_files = held_out_;
    }
    if (!prepared_validation_.empty()) {
      PreparedParts prepared = open_prepared(prepared_validation_);
      const bool has_both = prepared.validation.tokens.count() > 0;
      data_.validation = std::move(has_both ? prepared.validation : prepared.training);
    }
  }

  void open_training() {
    if (config_.use_synthetic_data) {
      data_.sources.push_back({"synthetic data"});
      data_.parts.push_back(synthetic_part(config_, vocab_size_, context_));
    } else if (streams_) {
      // Of data that cannot be a stream both say so.
      auto stream = stream_settings(config_, data_, kinds_, vocab_size_, context_);
      if (config_.eval_only) return;
      data_.stream = std::move(stream);
      for (const StreamSettings::Source& source : data_.stream->sources)  // a file of each is open
        data_.lane_reading_bytes += reading_bytes(source.files, source.reading);
    } else {
      for (size_t i = 0; i < data_.sources.size(); ++i) open_source(i);
    }
  }

  void open_source(size_t i) {
    const DataSource& source = data_.sources[i];
    if (!source.prepared.empty()) {
      PreparedParts prepared = open_prepared(source.prepared);
      if (i == 0) filler_ = prepared.training.prepared->manifest.end_of_text;
      data_.parts.push_back(std::move(prepared.training));
      if (!validates() && prepared.validation.tokens.count() > 0)
        data_.validation = std::move(prepared.validation);
    } else if (!source.files.training.empty()) {
      const std::string what = data_.sources.size() > 1 ? shown(source) : "training text";
      data_.parts.push_back(open_part(what, shown(source), source.files.training, kinds_[i]));
    }
  }

  void cut_training() {
    std::vector<MixPart> mix;
    for (size_t i = 0; i < data_.parts.size(); ++i) {
      TokenPart& part = data_.parts[i];
      const DataSource& source = data_.sources[i];
      if (!config_.eval_only && !has_targets(part.tokens)) {
        const bool reads = i < kinds_.size() && kinds_[i];
        throw UserError(
            cat(shown(source), " holds no token that is learned.",
                reads ? missing_answers(source.files.training, *kinds_[i], config_) : "",
                " tessera data inspect shows what is"));
      }
      const Packing packing = packing_of(config_, part);
      if (i == 0 && !validates() && config_.validation_fraction > 0 && !part.synthetic)
        hold_out(config_.validation_fraction, packing, context_, part, data_.validation);
      mix.push_back(
          {samples_of(part, packing, context_, filler_, config_, shown(source), data_.warnings),
           source.weight});
    }
    if (mix.size() == 1) {
      data_.training_samples = std::move(mix[0].source);
    } else if (!mix.empty()) {
      data_.training_samples =
          std::make_shared<MixedDataset>(std::move(mix), static_cast<uint64_t>(config_.seed), true);
    }
  }

  void cut_validation() {
    if (!validates()) return;
    TokenPart& validation = data_.validation;
    // What is held out of a part is cut as the part is.
    const bool own = validation.cache || validation.file || validation.prepared;
    const TokenPart& like = own ? validation : data_.parts[0];
    RunConfig whole = config_;
    whole.max_dataset_len.reset();
    const Packing packing = packing_of(config_, like);
    data_.validation_samples =
        samples_of(validation, packing, context_, filler_, whole, validation_name_, data_.warnings);
    const bool is_text = like.cache && validation.kind == RecordKind::kText;
    if (is_text && packing == Packing::kConcatenate)
      data_.validation_bytes = predicted_bytes(validation.tokens, *data_.tokenizer);
  }

  void warn(const std::string& warning, const std::string& of = "") {
    if (!warning.empty()) data_.warnings.push_back(of + warning);
  }
  bool validates() const { return data_.validation.tokens.count() > 0; }
  TokenPart open_part(const std::string& what, const std::string& name,
                      const std::vector<RemoteEntry>& files, std::optional<RecordKind> kind) const {
    return kind ? open_token_part(what, name, files, *kind, config_, data_, vocab_size_, pool_)
                : open_token_file(what, files, config_, vocab_size_);
  }
  PreparedParts open_prepared(const std::string& directory) const {
    return open_prepared_parts(directory, data_.tokenizer.get(), vocab_size_);
  }

  const RunConfig& config_;
  const int64_t vocab_size_, context_;
  ThreadPool& pool_;
  TrainingData data_;
  std::vector<std::optional<RecordKind>> kinds_;  // of each source
  bool streams_ = false;
  std::string prepared_validation_;    // a directory of what is held out by name, or
  std::vector<RemoteEntry> held_out_;  // its files
  std::optional<RecordKind> held_out_kind_;
  std::string validation_name_;
  // Without a tokenizer any id fills up the last window: nothing is predicted there.
  int32_t filler_ = 0;
};

}  // namespace

int64_t TrainingData::training_tokens() const {
  int64_t tokens = 0;
  for (const TokenPart& part : parts) tokens += part.tokens.count();
  return tokens;
}

std::vector<uint64_t> TrainingData::known_stream_hashes() const {
  const bool chats = std::ranges::any_of(
      stream->sources, [](const auto& source) { return source.reading.kind == RecordKind::kChat; });
  const uint64_t words = tokenizer ? tokenizer->fingerprint() : 0;
  std::vector<uint64_t> hashes;
  for (uint64_t made_by : {chats ? encoder->fingerprint() : words, words})
    for (bool skips_bad_lines : {false, true})
      hashes.push_back(stream_fingerprint(*stream, made_by, skips_bad_lines));
  return hashes;
}

uint64_t TrainingData::training_hash() const {
  if (stream) return known_stream_hashes()[0];
  uint64_t hash = parts.size() == 1 ? parts[0].hash : 0;
  for (size_t i = 0; parts.size() > 1 && i < parts.size(); ++i)
    hash =
        hash_combine(hash_combine(hash, parts[i].hash), hash_text(format("%a", sources[i].weight)));
  return hash;
}

TrainingData prepare_training_data(const RunConfig& config, std::vector<DataSource> sources,
                                   std::unique_ptr<Tokenizer> tokenizer, int64_t vocab_size,
                                   int64_t context, ThreadPool& pool) {
  return DataPreparation(config, std::move(sources), std::move(tokenizer), vocab_size, context,
                         pool)
      .build();
}

}  // namespace tessera
