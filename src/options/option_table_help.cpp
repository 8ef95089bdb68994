#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "options/option_table.h"

// --help and docs/options.md.
namespace tessera {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kIndent = 6;

// Appends `text` indented, broken at blanks.
void append_wrapped(std::string& out, std::string_view text) {
  size_t column = kWidth;  // forces a new line before the first word
  for (std::string_view word : split(text, ' ')) {
    if (column + 1 + word.size() > kWidth) {
      out.append(column == kWidth && (out.empty() || out.back() == '\n') ? "" : "\n");
      out.append(kIndent, ' ');
      column = kIndent;
    } else {
      out.push_back(' ');
      ++column;
    }
    out.append(word);
    column += word.size();
  }
  out.push_back('\n');
}

std::string spelled(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::string_view name : names) text += cat(text.empty() ? "--" : ", --", name);
  return text;
}

std::vector<std::string_view> unbuilt_values(const OptionRow& row) {
  std::vector<std::string_view> names;
  for (const OptionValue& value : row.values) {
    if (!value.built) names.push_back(value.name);
  }
  return names;
}

// "works", "no effect: ...", "not built yet", "not built yet: cuda, xla".
std::string status_text(const OptionRow& row) {
  if (row.status == OptionStatus::kNoEffect) return cat("no effect: ", row.reason);
  if (row.status == OptionStatus::kNotBuilt) return "not built yet";
  auto unbuilt = unbuilt_values(row);
  return unbuilt.empty() ? "works" : cat("not built yet: ", join(unbuilt, ", "));
}

std::string escaped(std::string_view text) {
  std::string s;
  for (char c : text) s += c == '|' ? std::string("\\|") : std::string(1, c);
  return s;
}

// "train, plan, bench" is what most options have and goes without saying, and so does "explain"
// beside "plan".
std::string scope_text(const OptionRow& row) {
  if (row.scopes == kRunScopes) return "";
  std::vector<std::string_view> names;
  for (auto scope :
       {OptionScope::kTrain, OptionScope::kPlan, OptionScope::kBench, OptionScope::kGenerate,
        OptionScope::kTokenizer, OptionScope::kDiff, OptionScope::kExport, OptionScope::kData,
        OptionScope::kCheckpoint, OptionScope::kPlot, OptionScope::kProfile,
        OptionScope::kPostmortem, OptionScope::kConvert, OptionScope::kExplain}) {
    const bool said = scope == OptionScope::kExplain && (row.scopes & in(OptionScope::kPlan));
    if ((row.scopes & in(scope)) && !said) names.push_back(name(scope));
  }
  return join(names, ", ");
}

std::string resume_markdown() {
  std::string out =
      "\n## Changed on a resume\n\nWhat it means that `--resume_from_checkpoint` finds a "
      "checkpoint of other values ([checkpoints.md](checkpoints.md)). Options that are not here "
      "may change.\n\n| | |\n|---|---|\n";
  for (auto [kind, meaning] :
       {std::pair{OnResume::kRefused,
                  "what they stand for must be the same (model, optimizer, frozen "
                  "parameters, tokenizer), else an error"},
        {OnResume::kWarned, "change what is computed from there on: a warning with both values"},
        {OnResume::kText, "a warning if the training text has become another one"},
        {OnResume::kOverridden,
         "the schedule goes on as in the checkpoint: a warning that they are ignored"}}) {
    std::vector<std::string> names;
    for (const OptionRow& row : option_table()) {
      if (row.on_resume == kind) names.push_back(cat("`--", row.name, "`"));
    }
    out += cat("| ", join(names, ", "), " | ", meaning, " |\n");
  }
  return out;
}

std::string bundle_help(const OptionBundle& bundle) {
  return cat(bundle.one_value_each ? "one value each for " : "the same value for ",
             spelled(bundle.targets));
}

bool has_word(std::string_view text, std::string_view word) {
  std::string wanted = lower(word);
  std::ranges::replace(wanted, '-', '_');
  size_t dashes = std::min(wanted.find_first_not_of('_'), wanted.size());
  return lower(text).find(wanted.substr(dashes)) != std::string::npos ||
         lower(text).find(lower(word)) != std::string::npos;
}

bool mentions(const OptionRow& row, std::string_view word) {
  return has_word(cat(row.name, " ", join(row.aliases, " "), " ", row.group, " ", row.help), word);
}

}  // namespace

std::string option_help(OptionScope scope, std::string_view word) {
  std::string out;
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (!(row.scopes & in(scope)) || !mentions(row, word)) continue;
    if (row.group != group) out += cat(out.empty() ? "" : "\n", row.group, "\n");
    group = row.group;
    out += cat("  --", row.name, " ", type_name(row), " (", default_text(row), ")\n");
    std::string text(row.help);
    if (!row.aliases.empty()) text += cat("; also ", spelled(row.aliases));
    std::string status = status_text(row);
    if (status != "works") text += cat(" [", status, "]");
    append_wrapped(out, text);
  }
  for (const OptionBundle& bundle : option_bundles()) {
    if (!(find_option(bundle.targets.front())->scopes & in(scope))) continue;
    if (!has_word(cat(bundle.name, " ", bundle_help(bundle)), word)) continue;
    out += cat("  --", bundle.name, "\n");
    append_wrapped(out, bundle_help(bundle));
  }
  if (out.empty() && !word.empty()) {
    throw UsageError(cat("no option of tessera ", name(scope), " has to do with '", word,
                         "'; see tessera ", name(scope), " --help"));
  }
  return out;
}

std::string options_markdown() {
  std::string out =
      "# Options\n\n"
      "Made from the table in `src/options/option_table*.cpp`; do not edit by hand.\n\n"
      "`--name=value` and `--name value` are the same, and so are `-` and `_` in names. `None` is "
      "no value; of options of text and lists so is an empty one (`--stop=`). Booleans are True, "
      "False, 1 or 0 in "
      "any case, and a bare flag is True. A list takes "
      "one "
      "or more words. The last of several values wins, across other spellings too. An option whose "
      "status is *not built yet* passes `tessera plan` and `tessera explain`, which take the same "
      "options, with a note; elsewhere a value that would "
      "change something is an error.\n\n"
      "Options may also stand in [configuration files](configuration_files.md): `--config FILE`.\n";
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (row.group != group) {
      out += cat("\n## ", row.group, "\n\n| option | also | type | default | meaning | status |\n",
                 "|---|---|---|---|---|---|\n");
    }
    group = row.group;
    std::string also;
    for (std::string_view alias : row.aliases)
      also += cat(also.empty() ? "" : ", ", "`--", alias, "`");
    if (!row.environment.empty()) {
      also += cat(also.empty() ? "" : ", ", "environment `", row.environment, "`");
      if (!row.environment_unless.empty())
        also += cat(" (unless `--", row.environment_unless, "` is given)");
    }
    std::string help = escaped(row.help), scopes = scope_text(row);
    if (!scopes.empty()) help += cat(" (", scopes, ")");
    out += cat("| `--", row.name, "` | ", also, " | ", escaped(type_name(row)), " | ",
               escaped(default_text(row)), " | ", help, " | ", status_text(row), " |\n");
  }
  out += resume_markdown();
  out += "\n## Several at once\n\n| option | meaning |\n|---|---|\n";
  for (const OptionBundle& bundle : option_bundles()) {
    out += cat("| `--", bundle.name, "` | ", bundle_help(bundle), " |\n");
  }
  return out;
}

}  // namespace tessera
