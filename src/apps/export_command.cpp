#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/named_models.h"
#include "apps/progress.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/local_output.h"
#include "checkpoint/checkpoint.h"
#include "generate/trained_model.h"
#include "models/build_model.h"
#include "options/option_record.h"
#include "remote/url.h"
#include "weights/adapter_weights.h"
#include "weights/gguf_export.h"
#include "weights/model_export.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHelp = R"(Usage: tessera export MODEL DIR [OPTIONS]

Writes a trained model as a directory that Hugging Face's transformers loads: configuration, weights and
tokenizer. MODEL is a checkpoint of any number of ranks, a directory of checkpoints (the newest is taken), or a
Hugging Face model, which --lora_adapter gives an adapter of PEFT. The tokenizer of the training run is used
unless --tokenizer is given; of a run on ids, which had none, or with --tokenizer None the model is written
without one. With it goes the --chat_template of the run, or one that is given here. Of a model with adapters
(--lora_rank) these are written, as PEFT loads them, or with --merge_adapter 1 the whole model.
With --format gguf the second word is one file, with the tokenizer in it, as llama.cpp's programs read it.

Examples
  tessera export checkpoints my-model
  tessera export checkpoints/llama_v2-700steps my-model --dtype bf16 --max_shard_size 2GB
  tessera export checkpoints merged --merge_adapter 1        a model and the adapters that it was given, as one
  tessera export checkpoints my-model.gguf --format gguf --dtype bf16        then llama-quantize makes it smaller
  tessera export models/Llama-3.2-1B merged --lora_adapter my-adapter --merge_adapter 1        without a run
  tessera train --hf_pretrained_model_name_or_dir my-model --dataset more.txt      train on from it

Options
)";

void write_gguf(const std::string& path, const TrainedModel& trained, const RunConfig& config,
                const std::string& chat) {
  if (trained.tokenizer.empty())
    throw UserError(
        "--format gguf: the file holds the model's tokenizer, and there is none: give "
        "--tokenizer");
  Progress lines("writing");
  GgufOptions options{dtype_from_name(config.dtype), trained.tokenizer,
                      [&](int64_t done, int64_t total) { lines.show(done, total, format_bytes); }};
  options.chat_template = chat;
  const ModelConfig& model = trained.model;
  if (model.lora.rank == 0) {
    if (config.merge_adapter) refuse_merge();
    return export_gguf(path, model, *trained.weights, options);
  }
  if (!config.merge_adapter) {
    throw UserError(
        "--format gguf writes whole models, and this one has adapters: give --merge_adapter 1");
  }
  ModelConfig merged = model;
  merged.lora = {};
  const auto parameters = build_model(model, 1, 1, ModelHead::kNext).parameters;
  export_gguf(path, merged, MergedWeights(*trained.weights, model, parameters), options);
}

void check_format(const ParsedOptions& parsed) {
  const bool gguf = parsed.config.format == "gguf";
  if (!gguf && parsed.words[1].ends_with(".gguf")) {
    throw UsageError(cat("'", parsed.words[1],
                         "' is called as a file of llama.cpp's programs, and would be a directory: "
                         "give --format gguf, or another name"));
  }
  if (gguf && parsed.is_given("max_shard_size"))
    throw UsageError("--max_shard_size: --format gguf writes one file");
}

// "": of a model that is written without one. nullopt: its own.
std::optional<std::string> tokenizer_to_write(const ParsedOptions& parsed,
                                              const std::optional<RunRecord>& record) {
  if (parsed.is_given("tokenizer"))
    return fetch_named_tokenizer(parsed.config.tokenizer, parsed.config);
  // A run records its text and, if it has one, its tokenizer.
  if (record && record->training_text && !record->tokenizer) return "";
  return std::nullopt;
}

// As a run records it.
std::string recorded_name(const std::string& model) {
  RunConfig config;
  config.hf_pretrained_model_name_or_dir = model;
  return without_secrets(with_model_names(with_absolute_paths(config)))
      .hf_pretrained_model_name_or_dir;
}

// Adapters alone are written without what these say.
void check_adapter_options(const ParsedOptions& parsed, const ModelConfig& model) {
  if (model.lora.rank == 0 || parsed.config.merge_adapter) return;
  for (const char* option : {"tokenizer", "chat_template"}) {
    if (parsed.is_given(option))
      throw UserError(cat("--", option,
                          ": the model has adapters, which are written without a tokenizer: give "
                          "--merge_adapter 1 for the whole model, or leave it out"));
  }
}

// Ends where it was asked to. Not in what writes the files: a training run that is asked to end
// still finishes its model with that.
class InterruptibleParameters : public ParameterSource {
 public:
  explicit InterruptibleParameters(const ParameterSource& source) : source_(source) {}
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    check_interruption();
    source_.read(parameter, first, values);
  }
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override {
    source_.advise(parameter, first, count, advice);
  }

 private:
  const ParameterSource& source_;
};

}  // namespace

int export_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kExport);
  if (parsed.help) return print_help(parsed, kHelp);
  if (parsed.words.size() != 2) {
    throw UsageError(
        "export takes a checkpoint, a directory of them or a Hugging Face model, and the directory "
        "to write: tessera export MODEL DIR");
  }
  const std::string &name = parsed.words[0], &to = parsed.words[1];
  require_local_output("export: the model", to);
  check_format(parsed);
  log_messages(parsed);
  const RunConfig& config = parsed.config;
  if (config.format != "gguf") check_export_directory(to);
  const auto found = newest_complete_checkpoint(name);
  std::optional<RunRecord> record;
  if (found) record = record_of(*open_checkpoint(*found));
  const TrainedModel trained = open_trained_model(found ? found->string() : name, config,
                                                  tokenizer_to_write(parsed, record));
  check_adapter_options(parsed, trained.model);
  if (parsed.is_given("tokenizer") && !trained.tokenizer.empty())
    warn_of_other_tokenizer(masked_url(config.tokenizer), *load_tokenizer(trained.tokenizer),
                            trained);
  const std::string chat =
      parsed.is_given("chat_template") ? config.chat_template : trained.chat_template;
  catch_interruptions("nothing will be left of the model");
  try {
    if (config.format == "gguf") {
      write_gguf(to, trained, config, chat);
      return 0;
    }
    ExportOptions options{dtype_from_name(config.dtype), config.max_shard_size};
    options.tokenizer = trained.tokenizer;
    options.chat_template = chat;
    options.merge_adapter = config.merge_adapter;
    options.base_model =
        record && config.lora_adapter.empty() ? base_model_of(*record) : recorded_name(name);
    export_trained(to, trained.model, InterruptibleParameters(*trained.weights), options);
  } catch (const Interrupted&) {
    throw UserError(cat("interrupted; nothing was written to '", to, "'"));
  }
  return 0;
}

}  // namespace tessera
