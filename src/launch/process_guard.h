#pragma once
#include <sys/types.h>

#include "comm/file_descriptor.h"

namespace tessera {

// Kills what is left of the workers when their agent is gone, however it ended: a small process in
// a session of its own that holds a pipe to the agent and knows the workers' process groups. The
// system's own signal at the death of a parent reaches a worker, but not what the worker started.
// To be made before any thread.
class ProcessGuard {
 public:
  ProcessGuard();
  ~ProcessGuard();  // kills the groups that are left, and waits for that
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);

 private:
  FileDescriptor pipe_;
  pid_t pid_ = 0;
};

}  // namespace tessera
