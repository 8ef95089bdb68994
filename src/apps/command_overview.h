#pragma once
#include <string>
#include <vector>

namespace tessera {

// An option as shells and the manual show it.
struct OverviewOption {
  std::string name;                  // without "--"
  std::vector<std::string> aliases;  // in the same form; "-x" stands for itself
  std::string value;                 // what it takes, "" for a flag
  std::vector<std::string> values;   // where only these are: an enumeration
  std::string help;
};

struct CommandOverview {
  std::string name, summary;
  std::vector<std::string> actions;  // the words that may follow its name: `slurm render`
  bool starts_commands = false;      // the words of another command may follow
  std::vector<OverviewOption> options;
};

// All commands with all their options, from the tables by which they are read.
std::vector<CommandOverview> command_overviews();

}  // namespace tessera
