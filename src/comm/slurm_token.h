#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "comm/slurm_step.h"

namespace tessera {

// The token of a step of several tasks, which no command line shows. If TESSERA_JOB_TOKEN is set,
// it follows from that and the step. Otherwise task 0 draws one and leaves it in a file that only
// its user can read (mode 0600), in the directory in which the tasks run; the others read it there.
class SlurmToken {
 public:
  // Waits for the file until the timeout is over, then CommError that says where it was looked for.
  // UserError for a file that somebody else made or can read, and where none can be made.
  SlurmToken(const SlurmStep& step, const Environment& environment,
             std::chrono::milliseconds timeout);
  // Task 0 removes the file: everybody who joined has read it.
  ~SlurmToken();
  SlurmToken(const SlurmToken&) = delete;
  SlurmToken& operator=(const SlurmToken&) = delete;

  const std::string& value() const { return value_; }

 private:
  std::filesystem::path made_;  // empty: none
  std::string value_;
};

}  // namespace tessera
