#pragma once
#include <string>
#include <vector>

#include "passes/residency.h"
#include "programs/session.h"

namespace tessera {

// A storage of the near arena that is live at the peak of its program.
struct HeldStorage {
  int64_t bytes = 0;     // as it lies in the arena, rounded up to kBufferAlignment
  std::string category;  // as `tessera plan` counts it
  Value value;           // what lies there then; none: scratch, or a copy of a result
  std::string type;      // "bf16[2, 32, 64]"; of these empty
  int32_t maker = -1;    // node that makes it, or whose scratch it is
  int32_t reader = -1;   // the last that reads it, itself or a view; -1: nobody, or it is a result
  std::string reason;    // why it is still there
};

// Largest first. Their bytes are live_peak_bytes of the plan, by category memory_at_peak().
// `residency`: the options by which activations are computed again or offloaded.
std::vector<HeldStorage> held_at_peak(const Graph& graph, const Plan& plan,
                                      const ResidencyOptions& residency);

// Sums of them by what a node is or where: largest first.
struct HeldSum {
  std::string name;
  int64_t bytes = 0, storages = 0;
};
std::vector<HeldSum> held_by_category(const std::vector<HeldStorage>& held);
std::vector<HeldSum> held_by_op(const Graph& graph, const std::vector<HeldStorage>& held);
std::vector<HeldSum> held_by_place(const Graph& graph, const std::vector<HeldStorage>& held);

// The program whose arena is the largest; null where the device plans by itself.
const Session::Program* largest_program(const Session& session);

}  // namespace tessera
