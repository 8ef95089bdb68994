#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "options/run_config.h"

namespace tessera {

// The command that is being given options; decides which rows it takes.
enum class OptionScope : uint8_t {
  kTrain,
  kPlan,
  kGenerate,
  kTokenizer,
  kBench,
  kDiff,
  kExport,
  kData,
  kCheckpoint,
  kPlot,
  kProfile,
  kPostmortem,
  kConvert,
  kExplain
};
constexpr OptionScope kLastScope = OptionScope::kExplain;

// "train", "plan", "generate", "tokenizer", "bench", "diff", "export", "data", "checkpoint",
// "plot", "profile", "postmortem", "checkpoint convert", "explain".
std::string_view name(OptionScope scope);

// A set of scopes.
using OptionScopes = unsigned;
constexpr OptionScopes in(OptionScope scope) { return 1u << static_cast<unsigned>(scope); }
constexpr OptionScopes kRunScopes = in(OptionScope::kTrain) | in(OptionScope::kPlan) |
                                    in(OptionScope::kBench) | in(OptionScope::kExplain);
// What is only planned, on any machine.
constexpr OptionScopes kPlanScopes = in(OptionScope::kPlan) | in(OptionScope::kExplain);

enum class OptionStatus : uint8_t {
  kWorks,
  kNoEffect,  // accepted; one warning when given
  kNotBuilt,  // `plan` notes it; elsewhere an error but for the default value
};

// What it means that a resumed run has another value than the one that wrote the checkpoint.
enum class OnResume : uint8_t {
  kUnsaid,      // only of rows that no run obeys: no effect, not built, of other commands
  kFree,        // nothing: it changes nothing that is computed, or is there to be changed
  kWarned,      // what is computed from there on is another thing: a warning with both values
  kText,        // a part of what makes the training text, which is compared as a whole; a warning
  kOverridden,  // the checkpoint's value holds; a warning that this one is ignored
  kRefused,     // what it stands for (model, optimizer, frozen parameters,
                // tokenizer) is compared: an error
};

// The field also says the type: an optional takes None (or inf), a vector takes one or more words.
using OptionField =
    std::variant<bool RunConfig::*, int64_t RunConfig::*, double RunConfig::*,
                 std::string RunConfig::*, std::optional<int64_t> RunConfig::*,
                 std::optional<double> RunConfig::*, std::vector<std::string> RunConfig::*>;

// Forms of a value beyond what its type says.
enum class ValueForm : uint8_t {
  kPlain,
  kBytes,        // int: a number of bytes, also written 80GiB, 512MB, 1.5g
  kLayerChoice,  // text: an integer, a fraction below 1, or p/q
  kCounts,       // a list of integers, of which each may be None
  kIntervals,    // a list of which each is a CheckpointInterval
  kOptional,     // may stand without a value: none
  kRepeated,     // a list, of which one word is given at a time
  kCommaList,    // a list, of which a word may hold several, between commas outside of []
};

// One value of an enumeration, in any case on the command line; stored as `name`.
struct OptionValue {
  std::string_view name;
  std::vector<std::string_view> synonyms = {};
  bool built = true;
};

struct OptionRow {
  std::string_view name;
  std::vector<std::string_view> aliases = {};
  OptionField field;
  std::string_view help;
  std::vector<OptionValue> values = {};  // enumerations: the only values
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool below_maximum = false;  // the range excludes its maximum
  bool infinity = false;       // float: inf is a value
  ValueForm form = ValueForm::kPlain;
  std::string_view none = {};  // the value that None stands for, where the field has no "none"
  OptionStatus status = OptionStatus::kWorks;
  std::string_view reason = {};              // kNoEffect: why
  std::string_view unset = "none";           // how an unset default is shown
  std::string_view environment = {};         // variable that stands in for the option ...
  std::string_view environment_unless = {};  // ... where that other option is not given
  OptionScopes scopes = kRunScopes;
  OnResume on_resume = OnResume::kUnsaid;
  std::string_view group = {};  // heading in --help; set for a whole group at once
};

// An option that stands for several: the same value for each, or one value for each.
struct OptionBundle {
  std::string_view name;
  std::vector<std::string_view> targets;
  bool one_value_each;
};

// Every option, in the order of --help.
const std::vector<OptionRow>& option_table();
const std::vector<OptionBundle>& option_bundles();

// The row with this name or alias; `-` and `_` are the same. Null if there is none.
const OptionRow* find_option(std::string_view name_or_alias);

// "int", "float", "bool", "bytes", "text", "list", or the values of an enumeration joined by `|`.
std::string type_name(const OptionRow& row);
// The value in the form that the command line takes; "None" for none, lists joined by blanks.
std::string value_text(const RunConfig& config, const OptionRow& row);
// What --help shows as the default.
std::string default_text(const OptionRow& row);

// Sets the field from words of the command line (one, unless the option is a list), after the rules
// of the row. UsageError that names `spelling` (how the user wrote the option), what was expected
// and what was found.
void set_option(RunConfig& config, const OptionRow& row, const std::vector<std::string>& words,
                std::string_view spelling);

// A text of form kLayerChoice as the share of the layers, numerator / denominator; nothing if it is
// malformed.
struct LayerShare {
  double numerator = 1, denominator = 1;
};
std::optional<LayerShare> parse_layer_share(std::string_view text);

// How often a checkpoint is written: "1000" (steps), "10m" (a number and s, m, h or d), or both,
// "1000,10m": whenever one of them is over. 0 where it says nothing.
struct CheckpointInterval {
  int64_t steps = 0;
  double seconds = 0;
};
std::optional<CheckpointInterval> parse_checkpoint_interval(std::string_view text);

// "True", "False" in any case, or an integer (above 0 is true).
std::optional<bool> parse_boolean(std::string_view text);

// --help's text for the options of a command, by group.
// With a `word` only the options that have it in their name, aliases, group or help, in any case;
// UsageError where none has.
std::string option_help(OptionScope scope, std::string_view word = "");
// docs/options.md.
std::string options_markdown();

}  // namespace tessera
