#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/command_option.h"

namespace tessera {

// `tessera tokenizer train|encode|decode|info ...`; `arguments` is what follows the word tokenizer.
// Returns the exit status. UsageError when the command line is wrong, UserError when an input is.
int tokenizer_command(std::span<const std::string> arguments);
// Those of all four.
std::vector<OptionText> tokenizer_options();

}  // namespace tessera
