#pragma once
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/option_table.h"
#include "train/run_config.h"

namespace tessera {

struct ParsedOptions {
  OptionScope scope = OptionScope::kTrain;
  RunConfig config;
  // Names of the rows (never aliases) that the command line or the environment gave.
  std::set<std::string, std::less<>> given;
  // Words that belong to no option: `diff RUN RUN`, `generate CHECKPOINT`, `bench step`, `tokenizer
  // train`. The command checks how many it needs; train and plan take none.
  std::vector<std::string> words;
  std::vector<std::string> warnings;  // to be shown once, in this order
  std::vector<std::string> notes;     // what the options imply; `plan`: what is not built yet
  bool help = false;                  // --help or -h: nothing after it was looked at

  bool is_given(std::string_view option) const { return given.contains(option); }
};

using EnvironmentLookup = std::function<std::optional<std::string>(const char* variable)>;
std::optional<std::string> process_environment(const char* variable);

// Reads the arguments that follow the command's name.
// UsageError: unknown option (with the nearest name), an option of another command, a value that
// does not fit its row, a stray word, lists of unequal length, contradicting fine-tuning options.
// UserError, except in `plan`: options that are not built yet with values that would matter; all
// are named at once.
ParsedOptions parse_options(std::span<const std::string> arguments, OptionScope scope,
                            const EnvironmentLookup& environment = process_environment);

}  // namespace tessera
