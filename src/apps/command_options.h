#pragma once
#include <span>
#include <string>

#include "options/option_parser.h"

namespace tessera {

// parse_options(), after which --log_level holds.
ParsedOptions parse_command(std::span<const std::string> arguments, OptionScope scope);

// For a job that another host runs: UsageError where train would refuse the words of its command.
// Its variables and its files, those of --config too, may be on that host only.
void check_worker_options(std::span<const std::string> command);

// Prints `introduction` and the options, or those only that `--help WORD` asks for. Returns the
// exit status.
int print_help(const ParsedOptions& parsed, const char* introduction);

// Logs the warnings and notes of the parser.
void log_messages(const ParsedOptions& parsed);

}  // namespace tessera
