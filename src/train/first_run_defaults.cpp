#include "train/first_run_defaults.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "hub/tokenizer_files.h"
#include "options/model_options.h"
#include "options/option_table.h"
#include "options/pretrained_source.h"
#include "options/run_record.h"
#include "remote/source.h"
#include "train/own_tokenizer.h"
#include "train/token_parts.h"
#include "train/training_data.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// Whoever gives one of these, or a shape option, has a model or a tokenizer in mind.
constexpr std::string_view kSaysModel[] = {"tokenizer",
                                           "model_config",
                                           "moe",
                                           "finetune",
                                           "pretrained_model_name",
                                           "pretrained_checkpoint_file",
                                           "finetune_checkpoint_load_dir",
                                           "hf_pretrained_model_name_or_dir"};

// What is chosen beside the model.
constexpr std::string_view kRunOptions[] = {"max_context_width",
                                            "train_batch_size",
                                            "max_steps",
                                            "epochs",
                                            "lr",
                                            "min_lr",
                                            "warmup",
                                            "weight_decay",
                                            "validation_fraction",
                                            "validation_freq",
                                            "val_batch_size",
                                            "validation_batches",
                                            "logging_freq",
                                            "activation_checkpointing"};

constexpr FirstRunShape kShapes[] = {
    {300'000, 512, 128, 4, 4, 2, 352, 128, 3e-3},
    {3'000'000, 4096, 192, 4, 3, 3, 512, 256, 3e-3},
    {30'000'000, 8192, 256, 6, 4, 2, 704, 256, 1.5e-3},
    {300'000'000, 16384, 384, 8, 6, 3, 1024, 512, 1e-3},
    {3'000'000'000, 32768, 512, 8, 8, 4, 1408, 1024, 8e-4},
    {INT64_MAX, 32768, 768, 12, 12, 4, 2048, 1024, 6e-4},
};

// Windows of a step, over all ranks.
constexpr int64_t kGlobalBatch = 8;
// A short text is read several times, until so many tokens were seen, a long one once, until so
// many steps were done.
constexpr double kTokensWanted = 1.6e6, kMostPasses = 8;
constexpr int64_t kMostSteps = 10'000, kLeastSteps = 20;
// Held-out windows are enough for a loss with two digits.
constexpr double kHeldOutWindows = 64;

// Unpacked, without what is around it in JSON: by the beginning of long texts.
int64_t text_bytes(const std::vector<RemoteEntry>& files, const RunConfig& config) {
  constexpr int64_t kLooked = int64_t{8} << 20;
  DocumentReader reader(files, reading_options(config, RecordKind::kText, 0));
  std::string text;
  int64_t bytes = 0;
  while (reader.next_part(text) != TextPart::kNone) {
    bytes += static_cast<int64_t>(text.size());
    if (bytes < kLooked) continue;
    const auto read = static_cast<double>(std::max<int64_t>(1, reader.bytes_read()));
    return static_cast<int64_t>(static_cast<double>(bytes) / read *
                                static_cast<double>(reader.bytes_total()));
  }
  return bytes;
}

// 1234 is 1200: two digits are all that an estimate has.
int64_t round_to_two_digits(double number) {
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(number)) - 1));
  return static_cast<int64_t>(std::round(number / unit) * unit);
}

class Choice {
 public:
  Choice(ParsedOptions& parsed, std::string origin) : parsed_(parsed), origin_(std::move(origin)) {}

  // Unless it is given.
  void set(std::string_view name, const std::string& value) {
    if (parsed_.is_given(name)) return;
    set_option(parsed_.config, *find_option(name), {value}, cat("--", name, " (", origin_, ")"));
    parsed_.given.emplace(name, origin_);
    said_.push_back(cat("--", name, " ", value));
  }
  void set(std::string_view name, int64_t value) { set(name, cat(value)); }
  void set(std::string_view name, double value) { set(name, format("%.3g", value)); }
  std::string said() const { return join(said_, " "); }

 private:
  ParsedOptions& parsed_;
  std::string origin_;
  std::vector<std::string> said_;
};

void choose_model(Choice& choice, const FirstRunShape& shape, int64_t context) {
  choice.set("model_type", "llama_v2");
  choice.set("vocab_size", shape.vocab_size);
  choice.set("hidden_width", shape.hidden_width);
  choice.set("num_layers", shape.num_layers);
  choice.set("num_heads", shape.num_heads);
  choice.set("num_key_value_heads", shape.num_key_value_heads);
  choice.set("intermediate_size", shape.intermediate_size);
  choice.set("tie_word_embeddings", int64_t{1});
  choice.set("max_context_width", context);
}

// Tokens that byte-level BPE makes of so much text, measured on English, documentation and Python.
double tokens_of(int64_t bytes, int64_t vocab_size) {
  const double doublings = std::log2(static_cast<double>(vocab_size) / 1024);
  return static_cast<double>(bytes) / (2.2 + 0.35 * doublings);
}

void choose_steps(Choice& choice, ParsedOptions& parsed, double windows, int64_t ranks) {
  const RunConfig& c = parsed.config;
  choice.set("train_batch_size", std::max<int64_t>(1, kGlobalBatch / ranks));
  const auto of_a_step =
      static_cast<double>(c.train_batch_size * c.gradient_accumulation_steps * ranks);
  const double pass = std::max(1.0, windows / of_a_step);  // in steps
  const double tokens = windows * static_cast<double>(c.max_context_width);
  if (parsed.is_given("epochs")) {
    // They are to end the run, not an estimate.
    choice.set("max_steps", round_to_two_digits(1.25 * pass * static_cast<double>(c.epochs) + 1));
  } else {
    const double passes = std::clamp(kTokensWanted / tokens, 1.0, kMostPasses);
    const double steps = std::clamp<double>(passes * pass, kLeastSteps, kMostSteps);
    choice.set("max_steps", round_to_two_digits(steps));
    choice.set("epochs",
               static_cast<int64_t>(std::ceil(static_cast<double>(c.max_steps) / pass * 1.1)) + 1);
  }
}

void choose_rest(Choice& choice, const RunConfig& c, const FirstRunShape& shape, double windows,
                 bool has_held_out) {
  choice.set("lr", shape.lr);
  if (has_floor(decay_style_from_name(c.lr_decay_style))) {
    choice.set("min_lr", c.lr / 10);
    choice.set("warmup", 0.15);  // with 0.05 some seeds lose a third of a short run (docs/data.md)
  }
  choice.set("weight_decay", 0.1);
  choice.set("activation_checkpointing", int64_t{0});
  if (!has_held_out) {
    const double held_out = std::clamp(kHeldOutWindows / windows, 0.01, 0.1);
    choice.set("validation_fraction", std::ceil(held_out * 100) / 100);
  }
  choice.set("validation_freq", std::max<int64_t>(1, (c.max_steps + 3) / 4));
  choice.set("val_batch_size", c.train_batch_size);
  choice.set("validation_batches", int64_t{100});
  choice.set("logging_freq", std::max<int64_t>(1, c.max_steps / 40));
}

void take_from_checkpoint(ParsedOptions& parsed, const RecordedRun& run) {
  const fs::path& checkpoint = run.checkpoint;
  const RunRecord& saved = run.record;
  Choice choice(parsed, cat("checkpoint ", checkpoint.string()));
  if (saved.tokenizer) choice.set("tokenizer", tokenizer_of(checkpoint, saved));
  const RunConfig defaults;
  auto take = [&](std::string_view name) {
    const OptionRow& row = *find_option(name);
    const std::string value = value_text(saved.options, row);
    if (value != value_text(defaults, row)) choice.set(name, value);
  };
  for (std::string_view name : shape_options()) take(name);
  for (std::string_view name : kSaysModel) take(name);
  for (std::string_view name : kRunOptions) take(name);
  parsed.notes.push_back(cat("Model, tokenizer and rates that are not given are those of ",
                             checkpoint.string(), ": ", choice.said()));
}

}  // namespace

const FirstRunShape& first_run_shape(int64_t text_bytes) {
  return *std::ranges::find_if(kShapes,
                               [&](const FirstRunShape& s) { return text_bytes < s.text_bytes; });
}

void choose_for_text(ParsedOptions& parsed, const FirstRunPlace& place) {
  const RunConfig& c = parsed.config;
  std::error_code ignored;
  auto given = [&](std::string_view option) { return parsed.is_given(option); };
  if (std::ranges::any_of(kSaysModel, given) || std::ranges::any_of(shape_options(), given) ||
      !given("dataset") || c.use_synthetic_data || !c.training_dir.empty())
    return;
  if (auto found = newest_recorded_run(place.checkpoints))
    return take_from_checkpoint(parsed, *found);
  if (!c.dataset_mix.empty() || c.streaming == "on") return;
  const bool is_here = fs::exists(c.dataset, ignored);
  if (!is_here && (kPlanScopes & in(parsed.scope)) && !is_remote_name(c.dataset))
    parsed.warnings.push_back(cat("--dataset '", c.dataset,
                                  "' is not on this machine: no model is "
                                  "chosen for its text, the defaults of options.md are planned"));
  if (!is_here || !data_need_tokenizer(c)) return;
  const DatasetFiles files =
      find_dataset_files({.dataset = c.dataset, .config = c.dataset_config_name});
  if (kind_of_files(c, files.training) != RecordKind::kText) return;

  const int64_t bytes = text_bytes(files.training, c);
  const std::string amount = cat(format_count(static_cast<double>(bytes)), "B of text");
  const FirstRunShape& shape = first_run_shape(bytes);
  const double tokens = tokens_of(bytes, shape.vocab_size);
  int64_t context = shape.context;
  while (context > 16 && tokens < static_cast<double>(20 * context)) context /= 2;

  Choice choice(parsed, cat("chosen for ", amount));
  choose_model(choice, shape, context);
  choice.set("tokenizer", own_tokenizer_path(c, files.training).string());
  double windows = std::max(1.0, tokens / static_cast<double>(c.max_context_width));
  if (c.max_dataset_len) windows = std::min(windows, static_cast<double>(*c.max_dataset_len));
  choose_steps(choice, parsed, windows, place.ranks);
  choose_rest(choice, c, shape, windows,
              !files.validation.empty() || !c.validation_dataset.empty());
  parsed.notes.push_back(cat("Neither model nor tokenizer is given: chosen for ", amount,
                             ", as if by ", choice.said()));
  if (parsed.scope == OptionScope::kTrain && c.checkpoint_dir.empty() && !c.eval_only)
    parsed.notes.push_back("Nothing is saved: give --checkpoint_dir DIR to keep the model");
}

void take_vocabulary(ParsedOptions& parsed) {
  const std::string_view source = model_source(parsed);
  const bool is_preset = source == "model_name" || source == "model_size";
  if ((!source.empty() && !is_preset) || configuration_of_file(parsed.config)) return;
  int64_t largest = 0;
  std::string origin;
  for (const fs::path& directory : token_directories(parsed.config)) {
    const fs::path meta = directory / "meta.pkl";
    std::error_code ignored;
    if (!fs::exists(meta, ignored)) continue;
    try {
      const int64_t size = read_meta_vocabulary(meta);
      if (size > largest) origin = meta.string();
      largest = std::max(largest, size);
    } catch (const UserError& error) {
      parsed.warnings.push_back(cat(error.what(), "; give --vocab_size what it says"));
    }
  }
  if (largest == 0) return;
  if (!parsed.is_given("vocab_size")) {
    Choice(parsed, origin).set("vocab_size", largest);
    parsed.notes.push_back(cat("vocabulary: ", largest, " ids, as '", origin, "' says"));
  } else if (parsed.config.vocab_size < largest) {
    throw UserError(cat("--vocab_size ", parsed.config.vocab_size,
                        " is smaller than the vocabulary of ", largest, " ids that '", origin,
                        "' says: leave it out, or give ", largest, " or more"));
  }
}

}  // namespace tessera
