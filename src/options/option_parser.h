#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options/option_file.h"
#include "options/option_table.h"
#include "options/run_config.h"

namespace tessera {

struct ParsedOptions {
  OptionScope scope = OptionScope::kTrain;
  RunConfig config;
  // The rows (by name, never by alias) that were given, each with its origin: "command line",
  // "run.toml:3:1", "environment variable XLA_CACHE_DIR".
  std::map<std::string, std::string, std::less<>> given;
  // As they were written, aliases too: "--mixed_precision", "run.toml:3:1: bf16".
  std::set<std::string> spellings;
  // Words that belong to no option: `diff RUN RUN`, `generate CHECKPOINT`, `bench step`, `tokenizer
  // train`. The command checks how many it needs; train and plan take none.
  std::vector<std::string> words;
  std::vector<std::string> warnings;  // to be shown once, in this order
  std::vector<std::string> notes;     // what the options imply; `plan`: what is not built yet
  bool help = false;                  // --help or -h: nothing after it was looked at
  std::string help_word;              // the word behind it: only options with it are wanted

  bool is_given(std::string_view option) const { return given.contains(option); }
};

using EnvironmentLookup = std::function<std::optional<std::string>(const char* variable)>;
std::optional<std::string> process_environment(const char* variable);

using OptionFileReader = std::function<std::string(const std::string& path)>;

// Reads the arguments that follow the command's name, then the files that they name with --config:
// a later file wins over an earlier one, and the command line over all files, wherever --config
// stands. Environment variables stand in for what neither gives.
// UsageError: unknown option (with the nearest name), an option of another command, a value that
// does not fit its row, a stray word, lists of unequal length, contradicting fine-tuning options;
// in a file, with its line and column: the same, and an option that is set twice.
// UserError, except in `plan`: options that are not built yet with values that would matter; all
// are named at once.
ParsedOptions parse_options(std::span<const std::string> arguments, OptionScope scope,
                            const EnvironmentLookup& environment = process_environment,
                            const OptionFileReader& read_file = read_option_file);

}  // namespace tessera
