#pragma once
#include <span>
#include <string>

#include "launch/run_options.h"

namespace tessera {

// `tessera run`: starts the workers of this node, meets the other nodes, restarts after failures;
// docs/launch.md. Returns the exit status: 0, that of the worker that failed here (128 + n: killed
// by signal n), 1 when another node failed, 143 after an interruption. `own_commands` are the words
// which mean this program again. To be called before any thread is started.
int run_agent(RunOptions options, std::span<const std::string> own_commands);

}  // namespace tessera
