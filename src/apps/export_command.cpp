#include <cstdio>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/named_models.h"
#include "base/dtype.h"
#include "checkpoint/checkpoint.h"
#include "weights/checkpoint_parameters.h"
#include "weights/model_export.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera export CHECKPOINT DIR [OPTIONS]

Writes a trained model as a directory that Hugging Face's transformers loads: configuration, weights and
tokenizer. CHECKPOINT is a checkpoint of any number of ranks, or a directory of checkpoints (the newest is
taken). The tokenizer of the training run is used unless --tokenizer is given. Of a run with adapters
(--lora_rank) these are written, as PEFT loads them, or with --merge_adapter 1 the whole model.

Examples
  tessera export checkpoints my-model
  tessera export checkpoints/llama_v2-700steps my-model --dtype bf16 --max_shard_size 2GB
  tessera export checkpoints merged --merge_adapter 1        a model and the adapters that it was given, as one
  tessera train --hf_pretrained_model_name_or_dir my-model --dataset more.txt      train on from it

Options
)";

}  // namespace

int export_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kExport);
  if (parsed.help) return print_help(parsed, kHelp);
  if (parsed.words.size() != 2) {
    throw UsageError(
        "export takes a checkpoint, or a directory of them, and the directory to write: tessera "
        "export CHECKPOINT DIR");
  }
  log_messages(parsed);
  check_export_directory(parsed.words[1]);
  auto found = newest_complete_checkpoint(parsed.words[0]);
  if (!found) throw UserError(cat("there is no complete checkpoint in '", parsed.words[0], "'"));
  CheckpointParameters weights(*found);
  const RunConfig& config = parsed.config;
  ExportOptions options{dtype_from_name(config.dtype), config.max_shard_size};
  options.tokenizer = parsed.is_given("tokenizer") ? fetch_named_tokenizer(config.tokenizer, config)
                                                   : tokenizer_of(*found, weights.record());
  options.merge_adapter = config.merge_adapter;
  options.base_model = base_model_of(weights.record().options);
  export_trained(parsed.words[1], weights.record().model, weights, options);
  return 0;
}

}  // namespace tessera
