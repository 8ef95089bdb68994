#include <cstdio>
#include <map>

#include "apps/checkpoint_command.h"
#include "apps/command_options.h"
#include "apps/named_models.h"
#include "apps/progress.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/local_output.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "hub/saved_state.h"
#include "hub/tokenizer_files.h"
#include "options/model_options.h"
#include "weights/checkpoint_conversion.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Of a state by another program: what its directory does not say the options must.
ModelConfig model_of(ParsedOptions& parsed, const fs::path& from) {
  std::error_code ignored;
  const fs::path beside =
      (fs::is_directory(from, ignored) ? from : from.parent_path()) / "config.json";
  bool described = !model_source(parsed).empty();
  for (std::string_view option : shape_options()) described = described || parsed.is_given(option);
  if (!described && !is_file(beside)) {
    throw UsageError(cat("which model is it? There is no '", beside.string(),
                         "': give --model_config DIR, --model_name NAME, or --model_type, "
                         "--hidden_width and so on as for tessera train"));
  }
  if (!described) parsed.config.model_config = beside.string();
  return resolve_model(parsed);
}

// The one that is given, or lies with the description of the model.
std::string tokenizer_for(const ParsedOptions& parsed) {
  const RunConfig& config = parsed.config;
  if (parsed.is_given("tokenizer")) return fetch_named_tokenizer(config.tokenizer, config);
  fs::path beside = config.model_config;
  std::error_code ignored;
  if (beside.empty()) return "";
  if (!fs::is_directory(beside, ignored)) beside = beside.parent_path();
  return has_tokenizer(beside) ? beside.string() : "";
}

// "lr_scheduler.last_epoch", but of many names that begin alike: "lr_scheduler.* (12)".
std::vector<std::string> gathered(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& name : names) groups[name.substr(0, name.find('.'))].push_back(name);
  std::vector<std::string> lines;
  for (const auto& [first, all] : groups) {
    if (all.size() <= kShown)
      lines.insert(lines.end(), all.begin(), all.end());
    else
      lines.push_back(cat(first, ".* (", all.size(), ": ", all[0], ", ", all[1], ", ...)"));
  }
  return lines;
}

void from_torch(ParsedOptions& parsed, const fs::path& from, const ConversionProgress& progress) {
  const ModelConfig model = model_of(parsed, from);
  parsed.notes.clear();  // of runs
  log_messages(parsed);
  const fs::path to = parsed.words[2];
  const ConvertedCheckpoint made = convert_from_torch(
      {from, to, model, parsed.config, tokenizer_for(parsed), parsed.config.position, progress});
  for (const std::string& warning : made.warnings) TESSERA_WARN(warning);
  std::string text = labelled("checkpoint", made.path.string());
  text += labelled("step", cat(made.record.step));
  text += labelled("next sample", cat(made.record.position));
  if (!made.left_out.empty()) text += labelled("left out", join(gathered(made.left_out), ", "));
  text += labelled("go on with", cat("tessera train ... --resume_from_checkpoint ", to.string(),
                                     " ", join(made.options, " ")));
  std::fputs(text.c_str(), stdout);
}

void to_torch(const ParsedOptions& parsed, const std::optional<fs::path>& found,
              const ConversionProgress& progress) {
  for (const auto& [option, origin] : parsed.given) {
    if (option == "config" || option == "log_level") continue;
    throw UsageError(cat("--", option, " is for checkpoints of other programs: '", parsed.words[1],
                         "' says itself what it is"));
  }
  log_messages(parsed);
  if (!found) {
    throw UserError(cat("'", parsed.words[1],
                        "' is neither a complete checkpoint of tessera nor "
                        "one of PyTorch's (a directory with .metadata, a file of torch.save)"));
  }
  convert_to_torch(*found, parsed.words[2], progress);
  std::fputs(labelled("made of", found->string()).c_str(), stdout);
  std::fputs(labelled("checkpoint", cat(parsed.words[2],
                                        ", as torch.distributed.checkpoint.load "
                                        "takes it: model.*, optim.*"))
                 .c_str(),
             stdout);
}

}  // namespace

int convert_checkpoint(ParsedOptions& parsed) {
  if (parsed.words.size() != 3) {
    throw UsageError(
        "checkpoint convert takes a checkpoint, of tessera or of PyTorch, and a new directory: "
        "tessera checkpoint convert FROM TO");
  }
  require_local_output("checkpoint convert: the new directory", parsed.words[2]);
  const fs::path from = parsed.words[1];
  Progress lines("writing");
  const ConversionProgress progress = [&](int64_t done, int64_t total) {
    lines.show(done, total, format_bytes);
  };
  catch_interruptions("nothing will be left of the new checkpoint");
  try {
    std::optional<fs::path> torch, own;
    const bool file = is_file(from);
    if (file ? looks_like_torch_file(from) : is_torch_checkpoint(from))
      torch = from;
    else if (!file && !(own = newest_complete_checkpoint(from)))
      torch = find_torch_checkpoint(from);
    if (torch)
      from_torch(parsed, *torch, progress);
    else
      to_torch(parsed, own, progress);
  } catch (const Interrupted&) {
    throw UserError(cat("interrupted; nothing was written to '", parsed.words[2], "'"));
  }
  return 0;
}

}  // namespace tessera
