#pragma once
#include <string_view>

namespace tessera {

// Exit statuses of the program. docs/guards.md has the same table, and a test compares them.
constexpr int kSuccessStatus = 0;
constexpr int kFailureStatus = 1;
constexpr int kUsageStatus = 2;
constexpr int kStalledStatus = 124;      // that of timeout(1)
constexpr int kInterruptedStatus = 143;  // what a shell says of SIGTERM: 128 + 15

struct ExitStatus {
  int status;
  std::string_view meaning;
};
inline constexpr ExitStatus kExitStatuses[] = {
    {kSuccessStatus, "done"},
    {kFailureStatus, "failed: the message says what is wrong and what to do"},
    {kUsageStatus, "the command line is wrong; not tried again by --max_restarts"},
    {kStalledStatus, "no step was done within --first_step_timeout or --step_timeout"},
    {130, "a second Ctrl-C (SIGINT): ended at once, nothing saved"},
    {137, "SIGKILL: killed by hand, because memory ran out, or by --inject kill"},
    {kInterruptedStatus,
     "asked to end by SIGTERM and the like: the step was finished and, with --checkpoint_dir, "
     "saved"},
};

}  // namespace tessera
