#include "apps/command_options.h"

#include <cstdio>
#include <filesystem>

#include "base/log.h"
#include "options/option_table.h"

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

void check_worker_options(std::span<const std::string> command) {
  if (command[0] != "train") return;
  struct OnAnotherHost {};
  try {
    parse_options(
        command.subspan(1), OptionScope::kTrain, [](const char*) { return std::nullopt; },
        [](const std::string& path) {
          std::error_code error;
          if (!std::filesystem::exists(path, error)) throw OnAnotherHost();
          return read_option_file(path);
        });
  } catch (const OnAnotherHost&) {
    // The words alone have been read: what the file says beside them is not known here.
  }
}

int print_help(const ParsedOptions& parsed, const char* introduction) {
  std::string options = option_help(parsed.scope, parsed.help_word);
  std::printf("%s%s", parsed.help_word.empty() ? introduction : "", options.c_str());
  return 0;
}

void log_messages(const ParsedOptions& parsed) {
  for (const std::string& warning : parsed.warnings) TESSERA_WARN(warning);
  for (const std::string& note : parsed.notes) TESSERA_INFO(note);
}

}  // namespace tessera
