#pragma once
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "comm/file_descriptor.h"
#include "launch/worker_command.h"

namespace tessera {

// A started worker: it leads a process group, dies with the thread that started it, reads from
// /dev/null and writes into pipes, whose ends here do not block.
struct WorkerProcess {
  pid_t pid = 0;
  FileDescriptor out, err;
};

// The environment of this process with some variables replaced or added: "NAME=value".
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables);

// UserError when the program cannot be executed, DeviceError when there can be no more processes.
WorkerProcess start_worker(const WorkerCommand& command,
                           const std::vector<std::string>& environment);

// This program once more, with these words and additional variables; its streams are those of this
// process. DeviceError when there can be no more processes.
pid_t start_own_program(const std::vector<std::string>& words,
                        const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace tessera
