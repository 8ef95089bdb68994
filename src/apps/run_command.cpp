#include <cstdio>
#include <cstdlib>

#include "apps/commands.h"
#include "launch/agent.h"

namespace tessera {

int run_command(std::span<const std::string> arguments) {
  auto environment = [](const char* name) { return static_cast<const char*>(std::getenv(name)); };
  RunOptions options = parse_run_options(arguments, environment);
  if (options.help) {
    std::fputs(run_help(options.help_word).c_str(), stdout);
    return 0;
  }
  return run_agent(std::move(options), command_names());
}

}  // namespace tessera
