#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "options/injected_fault.h"
#include "programs/session.h"

namespace tessera {

// Makes the faults of --inject that are meant for this rank and this attempt of the job, each once
// in the life of the process, with a warning when it does. Steps that are done again after a rewind
// have theirs behind them, and so have those of a restart: an attempt has a number.
class FaultInjector {
 public:
  FaultInjector() = default;
  // UsageError where a fault names a rank that the job does not have.
  FaultInjector(const std::vector<std::string>& words, int rank, int world_size, int attempt);

  // Before the gradients of a step are computed, and behind them. `done`: steps of this process.
  void before_gradients(int64_t step, int64_t done, Session& session);
  void after_gradients(int64_t step, int64_t done, Session& session);
  // A checkpoint is complete.
  void saved(int64_t step, int64_t done, const std::filesystem::path& checkpoint);

 private:
  struct Planned {
    InjectedFault fault;
    bool fired = false;
    std::optional<int64_t> until;  // slow: the step behind the last
  };
  // Whether it is time; says so.
  bool is_due(Planned& planned, int64_t step, int64_t done) const;

  std::vector<Planned> planned_;
};

}  // namespace tessera
