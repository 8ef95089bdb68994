#include <chrono>
#include <cstdio>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "flight/flight_places.h"
#include "flight/postmortem.h"

namespace tessera {
namespace {

constexpr const char* kHelp =
    R"(Usage: tessera postmortem [DIR] [--json]

What the flight recorder of a job says, while it runs, hangs, or when it is dead: who waited for whom, in which op and
layer, since when; of every rank what it was in and how it ended; the last events of the one for whom others waited; and
the native stacks that were written on a time-out, a crash or SIGUSR2. DIR is the --flight_recorder_dir of the run;
without it, the newest job of this user on this host. Rings of some of the ranks are enough.

Examples
  tessera postmortem
  kill -USR2 PID_OF_TESSERA_RUN; tessera postmortem          native stacks of a job that hangs, which goes on
  tessera postmortem /shared/flight --json

Options
)";

}  // namespace

int postmortem_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kPostmortem);
  if (parsed.help) return print_help(parsed, kHelp);
  if (parsed.words.size() > 1)
    throw UsageError("postmortem takes one directory: tessera postmortem DIR");
  const std::filesystem::path given =
      parsed.words.empty() ? newest_flight() : std::filesystem::path(parsed.words[0]);
  if (given.empty())
    throw UserError(
        "no job of this user on this host has left a flight recorder in /dev/shm; give the "
        "--flight_recorder_dir of a run");
  const FlightDirectory directory = read_flights(given);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Postmortem postmortem = postmortem_of(directory, now);
  const std::string text =
      parsed.config.json ? postmortem_json(postmortem) : postmortem_text(postmortem);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tessera
