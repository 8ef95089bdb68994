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
  TrainingData data;
  data.sources = std::move(sources);
  data.tokenizer = std::move(tokenizer);

  // Of each source, and of what is held out.
  std::vector<std::optional<RecordKind>> kinds;
  for (const DataSource& source : data.sources)
    kinds.push_back(kind_of_files(config, source.files.training));
  std::vector<RemoteEntry> held_out;
  const std::string prepared_validation =
      data.sources.empty() ? "" : data.sources[0].prepared_validation;
  for (DataSource& source : data.sources) {
    if (!prepared_validation.empty()) source.files.validation.clear();
    held_out.insert(held_out.end(), source.files.validation.begin(), source.files.validation.end());
  }
  const bool streams = reads_streams(config, data.sources, kinds);
  if (streams && !has_validation(data.sources) && !data.sources.empty()) {
    if (!hold_out_files(config.validation_fraction, data.sources[0]))
      TESSERA_INFO("Nothing is held out of the stream; give --validation_dataset to validate");
    held_out = data.sources[0].files.validation;
  } else {
    keep_fast_validation(config, held_out);
  }
  const std::optional<RecordKind> held_out_kind = kind_of_files(config, held_out);

  auto any_kind = [&](auto wanted) {
    return std::ranges::any_of(kinds, wanted) || wanted(held_out_kind);
  };
  const bool reads_text = any_kind([](auto kind) { return kind && *kind != RecordKind::kIds; });
  if (!data.tokenizer && (reads_text || is_tokenizer_there(config)))
    data.tokenizer = load_tokenizer(config.tokenizer);
  if (data.tokenizer) {
    check_vocabulary(data, vocab_size);
    std::optional<ChatTemplate> chat;
    if (any_kind([](auto kind) { return kind == RecordKind::kChat; }))
      chat = find_chat_template(config.tokenizer, *data.tokenizer, config.chat_template);
    if (chat) {
      if (std::string warning = answer_end_warning(*data.tokenizer, *chat); !warning.empty())
        data.warnings.push_back(warning);
    }
    data.encoder = std::make_unique<RecordEncoder>(*data.tokenizer, std::move(chat), vocab_size);
  }
  for (size_t i = 0; i < kinds.size() && !config.eval_only; ++i) {
    if (!data.tokenizer || !kinds[i] || *kinds[i] == RecordKind::kIds) continue;
    const std::string warning =
        special_name_warning(data.sources[i].files.training,
                             reading_options(config, *kinds[i], vocab_size), *data.tokenizer);
    if (!warning.empty()) data.warnings.push_back(cat(shown(data.sources[i]), " ", warning));
  }
  // Without a tokenizer any id fills up the last window: nothing is predicted there.
  int32_t filler = data.tokenizer ? data.tokenizer->end_of_text() : 0;
  auto open_part = [&](const std::string& what, const std::string& name,
                       const std::vector<RemoteEntry>& files, std::optional<RecordKind> kind) {
    return kind ? open_token_part(what, name, files, *kind, config, data, vocab_size, pool)
                : open_token_file(what, files, config, vocab_size);
  };

  const std::string& option =
      config.validation_dataset.empty() ? config.test_dir : config.validation_dataset;
  const std::string validation_name = option.empty() && !data.sources.empty()
                                          ? cat(shown(data.sources[0]), " (its validation data)")
                                          : cat("'", option, "'");
  if (!held_out.empty()) {
    data.validation = open_part("validation text", validation_name, held_out, held_out_kind);
    data.validation_files = held_out;
  }
  if (!prepared_validation.empty()) {
    PreparedParts prepared =
        open_prepared_parts(prepared_validation, data.tokenizer.get(), vocab_size);
    const bool has_both = prepared.validation.tokens.count() > 0;
    data.validation = std::move(has_both ? prepared.validation : prepared.training);
  }
  if (config.use_synthetic_data) {
    data.sources.push_back({"synthetic data"});
    data.parts.push_back(synthetic_part(config, vocab_size, context));
  } else if (streams) {
    // Of data that cannot be a stream both say so.
    auto stream = stream_settings(config, data, kinds, vocab_size, context);
    if (!config.eval_only) {
      data.stream = std::move(stream);
      for (const StreamSettings::Source& source : data.stream->sources)  // a file of each is open
        data.lane_reading_bytes += reading_bytes(source.files, source.reading);
    }
  } else {
    for (size_t i = 0; i < data.sources.size(); ++i) {
      const DataSource& source = data.sources[i];
      if (!source.prepared.empty()) {
        PreparedParts prepared =
            open_prepared_parts(source.prepared, data.tokenizer.get(), vocab_size);
        if (i == 0) filler = prepared.training.prepared->manifest.end_of_text;
        data.parts.push_back(std::move(prepared.training));
        if (data.validation.tokens.count() == 0 && prepared.validation.tokens.count() > 0)
          data.validation = std::move(prepared.validation);
        continue;
      }
      if (source.files.training.empty()) continue;
      const std::string what = data.sources.size() > 1 ? shown(source) : "training text";
      data.parts.push_back(open_part(what, shown(source), source.files.training, kinds[i]));
    }
  }

  std::vector<MixPart> mix;
  for (size_t i = 0; i < data.parts.size(); ++i) {
    TokenPart& part = data.parts[i];
    if (!config.eval_only && !has_targets(part.tokens)) {
      const bool reads = i < kinds.size() && kinds[i];
      throw UserError(
          cat(shown(data.sources[i]), " holds no token that is learned.",
              reads ? missing_answers(data.sources[i].files.training, *kinds[i], config) : "",
              " tessera data inspect shows what is"));
    }
    const Packing packing = packing_of(config, part);
    if (i == 0 && data.validation.tokens.count() == 0 && config.validation_fraction > 0 &&
        !part.synthetic)
      hold_out(config.validation_fraction, packing, context, part, data.validation);
    mix.push_back(
        {samples_of(part, packing, context, filler, config, shown(data.sources[i]), data.warnings),
         data.sources[i].weight});
  }
  if (mix.size() == 1) {
    data.training_samples = std::move(mix[0].source);
  } else if (!mix.empty()) {
    data.training_samples =
        std::make_shared<MixedDataset>(std::move(mix), static_cast<uint64_t>(config.seed), true);
  }
  TokenPart& validation = data.validation;
  if (validation.tokens.count() > 0) {
    // What is held out of a part is cut as the part is.
    const bool own = validation.cache || validation.file || validation.prepared;
    const TokenPart& like = own ? validation : data.parts[0];
    RunConfig whole = config;
    whole.max_dataset_len.reset();
    const Packing packing = packing_of(config, like);
    data.validation_samples =
        samples_of(validation, packing, context, filler, whole, validation_name, data.warnings);
    const bool is_text = like.cache && validation.kind == RecordKind::kText;
    if (is_text && packing == Packing::kConcatenate)
      data.validation_bytes = predicted_bytes(validation.tokens, *data.tokenizer);
  }
  return data;
}

}  // namespace tessera
