#pragma once
#include <vector>

#include "options/option_table.h"

// The rows of option_table(), by heading. Included by option_table*.cpp only.
namespace tessera::option_groups {

// Batches, ranks and the like: so far that products of them do not overflow 64 bits.
constexpr double kLargestCount = 1 << 20;

using enum OnResume;
using enum OptionStatus;

std::vector<OptionRow> steps();
std::vector<OptionRow> learning_rate();
std::vector<OptionRow> model();
std::vector<OptionRow> precision();
std::vector<OptionRow> parallelism();
std::vector<OptionRow> data();
std::vector<OptionRow> validation();
std::vector<OptionRow> checkpoints();
std::vector<OptionRow> adapters();
std::vector<OptionRow> logging();
std::vector<OptionRow> watching();
std::vector<OptionRow> guards();
std::vector<OptionRow> profiling();
std::vector<OptionRow> inspection();
std::vector<OptionRow> configuration();
std::vector<OptionRow> commands();
std::vector<OptionRow> data_commands();
std::vector<OptionRow> checkpoint_commands();
std::vector<OptionRow> plot_command();
std::vector<OptionRow> without_effect();

// Gives an option of other commands to `data`, if it takes it.
void share_with_data_commands(OptionRow& row);
// The same for `checkpoint convert`.
void share_with_convert(OptionRow& row);

}  // namespace tessera::option_groups
