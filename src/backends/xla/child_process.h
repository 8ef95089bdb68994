#pragma once
#include <chrono>
#include <functional>
#include <string>

namespace tessera::xla {

// Does something in a child process, since XLA ends its process where it does not go on, and
// returns what `work` returns there. What `work` throws is thrown here: UserError as such, all else
// as a DeviceError "DOING: ...". Such a one, with the last lines that the child printed, where it
// ended by itself or did not end in time and was killed. It inherits this process's memory, of
// which other threads may hold locks: `work` is for processes of one thread, beside the one that
// takes signals.
std::string in_child_process(const std::string& doing, std::chrono::seconds timeout,
                             const std::function<std::string()>& work);

}  // namespace tessera::xla
