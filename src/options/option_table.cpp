#include "options/option_table.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "options/option_table_groups.h"

namespace tessera {
namespace {

std::string normal(std::string_view text) {
  std::string s(text);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

std::vector<OptionRow> build_table() {
  namespace groups = option_groups;
  struct Group {
    std::string_view title;
    std::vector<OptionRow> rows;
  };
  Group all[] = {
      {"Steps, optimizer, seed", groups::steps()},
      {"Learning rate", groups::learning_rate()},
      {"Model", groups::model()},
      {"Precision", groups::precision()},
      {"Parallelism, memory", groups::parallelism()},
      {"Data", groups::data()},
      {"Validation", groups::validation()},
      {"Checkpoints, fine-tuning", groups::checkpoints()},
      {"Low-rank adapters", groups::adapters()},
      {"Logging, profiling, device", groups::logging()},
      {"Watching a run", groups::watching()},
      {"Guards of a run", groups::guards()},
      {"Profiles", groups::profiling()},
      {"Looking inside", groups::inspection()},
      {"Configuration files", groups::configuration()},
      {"Text, tokenizers, measurements", groups::commands()},
      {"Preparing and looking at data", groups::data_commands()},
      {"Looking after checkpoints", groups::checkpoint_commands()},
      {"Curves", groups::plot_command()},
      {"Accepted, no effect", groups::without_effect()},
  };
  std::vector<OptionRow> table;
  for (Group& group : all) {
    for (OptionRow& row : group.rows) {
      row.group = group.title;
      groups::share_with_data_commands(row);
      groups::share_with_convert(row);
      table.push_back(std::move(row));
    }
  }
  return table;
}

std::map<std::string, const OptionRow*, std::less<>> build_index() {
  std::map<std::string, const OptionRow*, std::less<>> index;
  auto add = [&](std::string_view spelling, const OptionRow& row) {
    bool added = index.emplace(normal(spelling), &row).second;
    TESSERA_CHECK(added, cat("option --", spelling, " stands twice in the table"));
  };
  for (const OptionRow& row : option_table()) {
    add(row.name, row);
    for (std::string_view alias : row.aliases) add(alias, row);
  }
  return index;
}

std::string text_of(bool value) { return value ? "True" : "False"; }
std::string text_of(int64_t value) { return cat(value); }
std::string text_of(double value) { return cat(value); }
std::string text_of(const std::string& value) { return value.empty() ? "None" : value; }
std::string text_of(const std::vector<std::string>& value) {
  return value.empty() ? "None" : join(value, " ");
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "None";
}

struct TypeName {
  std::string_view operator()(bool RunConfig::*) const { return "bool"; }
  std::string_view operator()(int64_t RunConfig::*) const { return "int"; }
  std::string_view operator()(std::optional<int64_t> RunConfig::*) const { return "int"; }
  std::string_view operator()(double RunConfig::*) const { return "float"; }
  std::string_view operator()(std::optional<double> RunConfig::*) const { return "float"; }
  std::string_view operator()(std::string RunConfig::*) const { return "text"; }
  std::string_view operator()(std::vector<std::string> RunConfig::*) const { return "list"; }
};

}  // namespace

std::string_view name(OptionScope scope) {
  constexpr std::string_view kNames[] = {"train",
                                         "plan",
                                         "generate",
                                         "tokenizer",
                                         "bench",
                                         "diff",
                                         "export",
                                         "data",
                                         "checkpoint",
                                         "plot",
                                         "profile",
                                         "postmortem",
                                         "checkpoint convert",
                                         "explain"};
  return kNames[static_cast<size_t>(scope)];
}

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = build_table();
  return table;
}

const std::vector<OptionBundle>& option_bundles() {
  static const std::vector<OptionBundle> bundles{
      {"betas", {"beta1", "beta2"}, /*one_value_each=*/true},
      {"dropout", {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, /*one_value_each=*/false},
  };
  return bundles;
}

const OptionRow* find_option(std::string_view name_or_alias) {
  static const auto index = build_index();
  auto it = index.find(normal(name_or_alias));
  return it == index.end() ? nullptr : it->second;
}

std::string type_name(const OptionRow& row) {
  if (!row.values.empty()) {
    std::vector<std::string_view> names;
    for (const OptionValue& value : row.values) names.push_back(value.name);
    return join(names, "|");
  }
  if (row.form == ValueForm::kBytes) return "bytes";
  return std::string(std::visit(TypeName{}, row.field));
}

std::string value_text(const RunConfig& config, const OptionRow& row) {
  return std::visit([&](auto field) { return text_of(config.*field); }, row.field);
}

std::string default_text(const OptionRow& row) {
  std::string text = value_text(RunConfig{}, row);
  return text == "None" ? std::string(row.unset) : text;
}

}  // namespace tessera
