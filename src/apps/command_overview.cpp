#include "apps/command_overview.h"

#include <map>

#include "apps/commands.h"
#include "base/text.h"
#include "cluster/cluster_options.h"
#include "launch/run_option_table.h"
#include "options/option_table.h"

namespace tessera {
namespace {

std::vector<OverviewOption> options_of_scopes(OptionScopes scopes) {
  std::vector<OverviewOption> options;
  for (const OptionRow& row : option_table()) {
    if (!(row.scopes & scopes) || row.status == OptionStatus::kNotBuilt) continue;
    OverviewOption option{std::string(row.name), {}, type_name(row), {}, std::string(row.help)};
    for (std::string_view alias : row.aliases) option.aliases.emplace_back(alias);
    for (const OptionValue& value : row.values)
      if (value.built) option.values.emplace_back(value.name);
    if (option.value == "bool") option.values = {"True", "False"};
    options.push_back(std::move(option));
  }
  return options;
}

std::vector<OverviewOption> options_of(const std::vector<OptionText>& list) {
  std::vector<OverviewOption> options;
  for (const OptionText& option : list) {
    options.push_back(
        {std::string(option.name), {}, std::string(option.value), {}, std::string(option.help)});
    if (option.alias.empty()) continue;
    options.back().aliases.push_back(cat(option.alias.size() == 1 ? "-" : "", option.alias));
  }
  return options;
}

std::vector<OverviewOption> options_of(const std::string& command) {
  if (command == "doctor") return options_of(doctor_options());
  if (command == "comm-test") return options_of(comm_test_options());
  if (command == "tokenizer") return options_of(tokenizer_options());
  if (command == "run") return options_of(texts(run_option_table()));
  if (command == "slurm") return options_of(texts(cluster_options(ClusterSystem::kSlurm)));
  if (command == "k8s") return options_of(texts(cluster_options(ClusterSystem::kKubernetes)));
  OptionScopes scopes = 0;  // of the command and of its actions
  for (unsigned i = 0; i <= static_cast<unsigned>(kLastScope); ++i) {
    const auto scope = static_cast<OptionScope>(i);
    if (name(scope) == command || name(scope).starts_with(command + " ")) scopes |= in(scope);
  }
  return options_of_scopes(scopes);
}

}  // namespace

std::vector<CommandOverview> command_overviews() {
  const std::map<std::string, std::vector<std::string>> actions{
      {"bench", {"ops", "step"}},
      {"checkpoint", {"ls", "show", "verify", "diff", "prune", "convert"}},
      {"completion", {"bash", "zsh", "fish"}},
      {"data", {"prepare", "inspect"}},
      {"explain", {"memory", "peak", "kernels", "passes"}},
      {"k8s", {"render"}},
      {"profile", {"report", "merge", "diff"}},
      {"slurm", {"render", "submit"}},
      {"tokenizer", {"train", "encode", "decode", "info"}}};
  std::vector<CommandOverview> all;
  for (const auto& [name, summary] : command_summaries()) {
    CommandOverview command{name, summary, {}, false, options_of(name)};
    if (auto at = actions.find(name); at != actions.end()) command.actions = at->second;
    command.starts_commands = name == "run" || name == "slurm" || name == "k8s";
    all.push_back(std::move(command));
  }
  return all;
}

}  // namespace tessera
