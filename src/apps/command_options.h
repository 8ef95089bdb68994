#pragma once
#include <span>
#include <string>

#include "options/option_parser.h"

namespace tessera {

// parse_options(), after which --log_level holds.
ParsedOptions parse_command(std::span<const std::string> arguments, OptionScope scope);

// Prints `introduction` and the options, or those only that `--help WORD` asks for. Returns the
// exit status.
int print_help(const ParsedOptions& parsed, const char* introduction);

// Logs the warnings and notes of the parser.
void log_messages(const ParsedOptions& parsed);

}  // namespace tessera
