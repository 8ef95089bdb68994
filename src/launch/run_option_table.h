#pragma once
#include <span>

#include "base/command_option.h"
#include "launch/run_options.h"

namespace tessera {

std::span<const CommandOption<RunOptions>> run_option_table();

}  // namespace tessera
