#pragma once
#include <span>
#include <string>

#include "train/option_parser.h"

namespace tessera {

// parse_options(), after which --log_level holds.
ParsedOptions parse_command(std::span<const std::string> arguments, OptionScope scope);

// Logs the warnings and notes of the parser.
void log_messages(const ParsedOptions& parsed);

}  // namespace tessera
