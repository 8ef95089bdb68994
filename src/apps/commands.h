#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/tokenizer_command.h"
#include "base/command_option.h"

namespace tessera {

// One function a subcommand: takes the words after its name, returns the exit status. Errors are
// thrown: UsageError is status 2, everything else 1. An interrupted training run that was saved
// returns 143.
int train_command(std::span<const std::string> arguments);
int plan_command(std::span<const std::string> arguments);
int explain_command(std::span<const std::string> arguments);
int generate_command(std::span<const std::string> arguments);
int bench_command(std::span<const std::string> arguments);
int export_command(std::span<const std::string> arguments);
int data_command(std::span<const std::string> arguments);
int checkpoint_command(std::span<const std::string> arguments);
int plot_command(std::span<const std::string> arguments);
int doctor_command(std::span<const std::string> arguments);
int comm_test_command(std::span<const std::string> arguments);
int profile_command(std::span<const std::string> arguments);
int postmortem_command(std::span<const std::string> arguments);
int diff_command(std::span<const std::string> arguments);
int version_command(std::span<const std::string> arguments);
int k8s_command(std::span<const std::string> arguments);
int slurm_command(std::span<const std::string> arguments);
int run_command(std::span<const std::string> arguments);

int completion_command(std::span<const std::string> arguments);
int manual_command(std::span<const std::string> arguments);

// The options of those that have a list of their own.
std::vector<OptionText> comm_test_options();
std::vector<OptionText> doctor_options();

// The names of all commands, and what each does, in the order of `tessera --help`.
std::vector<std::pair<std::string, std::string>> command_summaries();
// The names of all commands.
std::vector<std::string> command_names();

}  // namespace tessera
