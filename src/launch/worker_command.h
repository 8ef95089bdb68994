#pragma once
#include <span>
#include <string>
#include <vector>

#include "launch/run_options.h"

namespace tessera {

// What a rank executes.
struct WorkerCommand {
  std::string program;             // a path
  std::vector<std::string> words;  // its argv
  bool is_own = false;             // this program again
  bool records = false;            // it keeps a flight recorder, here or, "", where it does unasked
  std::string flight_recorder_dir;
  bool saves_nothing = false;  // `train` without --checkpoint_dir: each attempt begins anew
};

// Whether a rank can execute what `name` calls. A job that starts on other hosts or in containers
// may find there what is not `here`: then only what looks like a command of tessera is refused.
// UsageError where it cannot, and for a Python script, which tessera does not run.
void check_worker_program(const std::string& name, std::span<const std::string> own_commands,
                          bool here);

// The command behind the options of `tessera run`: a command of tessera (one of `own_commands`) is
// this program again, anything else a path or a program in PATH. UsageError as
// check_worker_program().
//
// `train` is completed: --threads, the cores of this node shared among its ranks, unless given.
// `notes` says what was added, and for attempts after the first where they begin.
WorkerCommand worker_command(const RunOptions& options, std::span<const std::string> own_commands,
                             int attempt, std::vector<std::string>& notes);

}  // namespace tessera
