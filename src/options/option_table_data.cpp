#include <algorithm>

#include "options/model_options.h"
#include "options/option_table_groups.h"

// Options of `tessera data`, `tessera checkpoint` and `tessera plot`.
namespace tessera::option_groups {
namespace {
constexpr OptionScopes kData = in(OptionScope::kData);
constexpr OptionScopes kCheckpoint = in(OptionScope::kCheckpoint);
constexpr OptionScopes kPlot = in(OptionScope::kPlot);
}  // namespace

std::vector<OptionRow> data_commands() {
  return {
      {.name = "preset",
       .field = &RunConfig::preset,
       .help = "data prepare: defaults of other programs' preparations; what is given wins "
               "(docs/data.md)",
       .values =
           {{.name = "none"}, {.name = "grouped"}, {.name = "openwebtext"}, {.name = "wikicorpus"}},
       .scopes = kData},
      {.name = "output_dir",
       .field = &RunConfig::output_dir,
       .help = "data prepare: the directory to write",
       .scopes = kData},
      {.name = "shard_tokens",
       .field = &RunConfig::shard_tokens,
       .help = "data prepare: tokens of a shard, to which the rest of some 64 KiB of text comes; "
               "what is "
               "killed goes on behind the last",
       .minimum = 1,
       .maximum = 1e12,
       .scopes = kData},
      {.name = "output_form",
       .field = &RunConfig::output_form,
       .help = "data prepare: shards with a manifest, or at the end train.bin and val.bin of ids "
               "alone, as nanoGPT reads them",
       .values = {{.name = "shards"}, {.name = "bin"}},
       .scopes = kData},
      {.name = "rows",
       .field = &RunConfig::rows,
       .help = "data prepare: documents stay as they are, or are joined, 1000 at a time, and cut "
               "into rows of max_context_width tokens, of which the rest is dropped",
       .values = {{.name = "documents"}, {.name = "windows"}},
       .scopes = kData},
      {.name = "append_eos",
       .field = &RunConfig::append_eos,
       .help = "data prepare: the end-of-text token follows every text",
       .scopes = kData},
      {.name = "validation_split",
       .field = &RunConfig::validation_split,
       .help = "data prepare: which validation_fraction of the documents is held out: each by a "
               "draw that follows from seed and number, or the last ones",
       .values = {{.name = "random"}, {.name = "last"}},
       .scopes = kData},
      {.name = "val_split_percentage",
       .field = &RunConfig::val_split_percentage,
       .help = "data prepare: validation_fraction in hundredths, with validation_split last",
       .minimum = 0,
       .maximum = 100,
       .below_maximum = true,
       .scopes = kData},
      {.name = "samples",
       .field = &RunConfig::samples,
       .help = "data inspect: documents that are shown",
       .minimum = 0,
       .maximum = 1000,
       .scopes = kData},
  };
}

std::vector<OptionRow> checkpoint_commands() {
  return {
      {.name = "position",
       .field = &RunConfig::position,
       .help =
           "checkpoint convert: samples of the data, in the order of the job that goes on, that "
           "were learned from; it begins behind them",
       .minimum = 0,
       .scopes = in(OptionScope::kConvert)},
      {.name = "keep",
       .field = &RunConfig::keep,
       .help = "checkpoint prune: so many complete checkpoints of every run stay, the newest",
       .minimum = 1,
       .scopes = kCheckpoint},
      {.name = "every",
       .field = &RunConfig::every,
       .help = "checkpoint prune: those of every so many steps stay, too",
       .minimum = 1,
       .scopes = kCheckpoint},
      {.name = "keep_best",
       .field = &RunConfig::keep_best,
       .help = "checkpoint prune: the one with the least validation loss stays, too "
               "(best_val_loss)",
       .scopes = kCheckpoint},
      {.name = "dry_run",
       .field = &RunConfig::dry_run,
       .help = "checkpoint prune: say what would go, remove nothing",
       .scopes = kCheckpoint},
      {.name = "json",
       .field = &RunConfig::json,
       .help = "checkpoint ls, show, verify, diff, profile report, diff, explain, postmortem: one "
               "JSON object on standard output",
       .scopes = kCheckpoint | in(OptionScope::kProfile) | in(OptionScope::kExplain) |
                 in(OptionScope::kPostmortem)},
  };
}

// What describes a model, since PyTorch's checkpoints do not.
void share_with_convert(OptionRow& row) {
  static constexpr std::string_view kShared[] = {"model_config", "max_context_width", "config",
                                                 "tokenizer", "log_level"};
  static constexpr std::string_view kOfExperts[] = {"num_local_experts", "num_experts_per_tok"};
  auto is_in = [&](std::span<const std::string_view> names) {
    return std::ranges::find(names, row.name) != names.end();
  };
  if (is_in(kShared) || (is_in(shape_options()) && !is_in(kOfExperts)))
    row.scopes |= in(OptionScope::kConvert);
}

std::vector<OptionRow> plot_command() {
  return {
      {.name = "metrics",
       .field = &RunConfig::metrics,
       .help = "plot: keys of the metrics files, a panel each (docs/metrics.md)",
       .unset = "loss",
       .scopes = kPlot},
      {.name = "smooth",
       .field = &RunConfig::smooth,
       .help = "plot: how much of each value comes from those before it",
       .minimum = 0,
       .maximum = 1,
       .below_maximum = true,
       .scopes = kPlot},
      {.name = "plot_file",
       .field = &RunConfig::plot_file,
       .help = "plot: what to write instead of drawing in the terminal: FILE.svg, FILE.png or "
               "FILE.html",
       .scopes = kPlot},
  };
}

// `data prepare` goes by the names that the programs whose work it does have for these.
void share_with_data_commands(OptionRow& row) {
  struct Shared {
    std::string_view name;
    std::vector<std::string_view> aliases = {};
  };
  static const Shared kShared[] = {
      {"dataset", {"dataset_name"}},
      {"dataset_config_name"},
      {"text_field"},
      {"tokenizer", {"hf_tokenizer_name"}},
      {"chat_template"},
      {"vocab_size"},
      {"on_bad_line"},
      {"max_context_width"},
      {"validation_dataset"},
      {"validation_fraction", {"test_size"}},
      {"seed"},
      {"threads", {"num_proc"}},
      {"cache_dir"},
      {"max_cache_size"},
      {"hf_home"},
      {"log_level"},
  };
  for (const Shared& shared : kShared) {
    if (shared.name != row.name) continue;
    row.scopes |= kData;
    row.aliases.insert(row.aliases.end(), shared.aliases.begin(), shared.aliases.end());
  }
}

}  // namespace tessera::option_groups
