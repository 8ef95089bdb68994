#include "apps/command_options.h"

#include "base/log.h"

namespace tessera {

ParsedOptions parse_command(std::span<const std::string> arguments, OptionScope scope) {
  ParsedOptions parsed = parse_options(arguments, scope);
  const std::string& level = parsed.config.log_level;
  set_log_level(level == "debug"     ? LogLevel::kDebug
                : level == "warning" ? LogLevel::kWarning
                : level == "error"   ? LogLevel::kError
                                     : LogLevel::kInfo);
  return parsed;
}

void log_messages(const ParsedOptions& parsed) {
  for (const std::string& warning : parsed.warnings) TESSERA_WARN(warning);
  for (const std::string& note : parsed.notes) TESSERA_INFO(note);
}

}  // namespace tessera
