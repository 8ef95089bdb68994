#include "apps/checkpoint_command.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

constexpr const char* kListHelp =
    R"(tessera checkpoint ls DIR [--json]
  The checkpoints of a directory, newest first: step, age, ranks that wrote it, files of state, bytes, run, and
  whether it is complete; what is left of saves that did not end; who holds the directory. Also called list.

    tessera checkpoint ls checkpoints
    tessera checkpoint ls checkpoints --json
)";

constexpr const char* kShowHelp =
    R"(tessera checkpoint show CHECKPOINT|DIR [TENSOR] [--json]
  What is in a checkpoint, or in the newest complete one of a directory: step, model, mesh, schedule, tokenizer,
  position in the data; every tensor with role, element type, shape and number of boxes. TENSOR is a name, or a
  pattern with *, ? and [..]: of these tensors also the boxes, and minimum, maximum, mean and norm.

    tessera checkpoint show checkpoints
    tessera checkpoint show checkpoints/llama_v2-700steps lm_head.weight
    tessera checkpoint show checkpoints 'model.layers.0.*'
)";

constexpr const char* kVerifyHelp =
    R"(tessera checkpoint verify CHECKPOINT|DIR [--threads N] [--json]
  Reads a checkpoint, or all of a directory, and compares every byte with what was written. Names the tensor and
  box that is damaged, or the file. Exit status 0: all whole; 1: something is damaged or missing.

    tessera checkpoint verify checkpoints/llama_v2-700steps
    tessera checkpoint verify checkpoints && rsync -a checkpoints elsewhere:
)";

constexpr const char* kPruneHelp =
    R"(tessera checkpoint prune DIR --keep N [--every N] [--keep_best] [--dry_run]
  Removes all complete checkpoints of every run but the newest N, those of every so many steps and the best one;
  and what is left of saves that did not end. Refused while a job saves there. What is damaged stays, and files
  that tessera did not write do.

    tessera checkpoint prune checkpoints --keep 3 --dry_run
    tessera checkpoint prune checkpoints --keep 3 --every 1000 --keep_best
)";

constexpr const char* kDiffHelp =
    R"(tessera checkpoint diff A B [--threads N] [--json]
  The differences of two checkpoints, or of the newest complete ones of two directories, whatever ranks wrote
  them: of the record (step, model, options), and of tensors, weights before moments and counters, and the
  largest difference first. Exit status 0: equal; 1: different.

    tessera checkpoint diff straight/llama_v2-20steps resumed/llama_v2-20steps
    tessera checkpoint diff checkpoints/llama_v2-600steps checkpoints/llama_v2-700steps --json
)";

constexpr const char* kConvertHelp =
    R"(tessera checkpoint convert FROM TO [options of the model] [--position N]
  Takes a whole training state (weights, what the optimizer keeps, steps) to PyTorch or from there. FROM is a
  checkpoint of tessera, or a directory of them: TO becomes one of torch.distributed.checkpoint, for dcp.load into
  {"model": ..., "optim": ...} of a model with fully_shard and its AdamW. Or FROM is one of PyTorch's (a directory
  with .metadata, of HuggingFaceStorageWriter, a file of torch.save, or a directory of such): TO becomes a directory
  of checkpoints for --resume_from_checkpoint. Which model it is says a config.json in FROM, or options as of tessera
  train; the tokenizer beside it, or of --tokenizer, goes into the checkpoint. What was not taken over is named, and the options to go on with.

    tessera checkpoint convert checkpoints for-pytorch
    tessera checkpoint convert outputs/step-1000 checkpoints --model_config models/Llama-3.2-1B
)";

struct SubCommand {
  const char* name;
  const char* help;
  int (*run)(ParsedOptions& parsed);
};

template <int (*run)(const ParsedOptions&)>
int reading(ParsedOptions& parsed) {
  return run(parsed);
}

constexpr SubCommand kSubCommands[] = {
    {"ls", kListHelp, reading<list_checkpoint_directory>},
    {"show", kShowHelp, reading<show_checkpoint>},
    {"verify", kVerifyHelp, reading<verify_checkpoints>},
    {"prune", kPruneHelp, reading<prune_checkpoints>},
    {"diff", kDiffHelp, reading<diff_checkpoints>},
    {"convert", kConvertHelp, convert_checkpoint},
};

std::string command_list() {
  std::vector<std::string> names;
  for (const SubCommand& command : kSubCommands) names.push_back(command.name);
  const std::string last = names.back();
  names.pop_back();
  return cat(join(names, ", "), " or ", last);
}

const SubCommand& find_command(const std::string& word) {
  std::vector<std::string> names;
  for (const SubCommand& command : kSubCommands) {
    if (word == command.name) return command;
    names.push_back(command.name);
  }
  const std::string close = nearest(word, names);
  throw UsageError(cat("unknown command 'checkpoint ", word, "'",
                       close.empty() ? "" : cat("; did you mean ", close, "?"), " (",
                       command_list(), ")"));
}

int checkpoint_help(const ParsedOptions& parsed) {
  std::string text;
  for (const SubCommand& command : kSubCommands) {
    if (parsed.words.empty() || parsed.words[0] == command.name)
      text += cat(text.empty() ? "" : "\n", command.help);
  }
  return print_help(parsed, cat(text, "\nOptions\n").c_str());
}

}  // namespace

int checkpoint_command(std::span<const std::string> arguments) {
  const bool converts = !arguments.empty() && arguments[0] == "convert";
  ParsedOptions parsed =
      parse_command(arguments, converts ? OptionScope::kConvert : OptionScope::kCheckpoint);
  if (!parsed.words.empty() && parsed.words[0] == "list") parsed.words[0] = "ls";
  if (parsed.help) return checkpoint_help(parsed);
  if (parsed.words.empty())
    throw UsageError(cat("tessera checkpoint needs a command: ", command_list()));
  const SubCommand& command = find_command(parsed.words[0]);
  for (const char* option : {"keep", "every", "keep_best", "dry_run"}) {
    if (parsed.is_given(option) && parsed.words[0] != "prune")
      throw UsageError(cat("--", option, " is an option of tessera checkpoint prune alone"));
  }
  if (!converts) log_messages(parsed);  // that one finds out more first
  return command.run(parsed);
}

std::vector<CheckpointEntry> checkpoints_at(const std::filesystem::path& path) {
  const std::filesystem::path directory = path.has_filename() ? path : path.parent_path();
  if (!is_stored_folder(directory)) {
    throw UserError(cat("'", directory.string(),
                        "' is no directory; give a checkpoint or a directory of checkpoints"));
  }
  std::optional<CheckpointEntry> itself = parse_checkpoint_name(directory);
  std::vector<CheckpointEntry> entries;
  if (!is_stored(directory / kManifestName)) {
    entries = list_checkpoints(directory);
    std::erase_if(entries, [](const CheckpointEntry& entry) { return !entry.maker.empty(); });
    if (!entries.empty()) return entries;
    if (!itself) throw UserError(cat("there is no checkpoint in '", directory.string(), "'"));
  }
  return {itself.value_or(CheckpointEntry{.path = directory, .model_type = ""})};
}

std::unique_ptr<CheckpointReader> open_newest(const std::filesystem::path& path) {
  auto found = newest_complete_checkpoint(path);
  if (!found) throw UserError(cat("there is no complete checkpoint in '", path.string(), "'"));
  return open_checkpoint(*found);
}

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string one;
    for (size_t i = 0; i < row.size(); ++i)
      one += cat(row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    one.erase(one.find_last_not_of(' ') + 1);
    text += cat(one, "\n");
  }
  return text;
}

std::string labelled(std::string_view label, std::string_view text) {
  return cat(label, std::string(14 - std::min<size_t>(13, label.size()), ' '), text, "\n");
}

std::string short_identity(const std::string& identity) {
  return identity.empty() ? "-" : identity.substr(0, 8);
}

void print_json(const nlohmann::ordered_json& json) {
  std::string text = json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace tessera
