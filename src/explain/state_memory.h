#pragma once
#include <string>
#include <vector>

#include "programs/session.h"

namespace tessera {

// The state slots of one kind and dtype: bytes = elements x size of the dtype, and
// elements = (parameters + padding) / pieces.
struct StateMemory {
  std::string kind;  // "weight", "exp_avg", "gradient"; of scalars "counters"
  SlotRole role = SlotRole::kScalar;
  DType dtype = DType::kF32;
  int64_t slots = 0;
  int64_t parameters = 0, padding = 0;  // elements, as tensor parallelism cuts them
  int64_t pieces = 1;                   // ranks that share them
  int64_t elements = 0, bytes = 0;      // on this rank
  // "30208 parameters and 1280 of padding, / 8 ranks, x 4 B (f32)"
  std::string formula() const;
};

// By role: all of them together are the state of Session::planned_memory(), to the byte.
std::vector<StateMemory> state_memory(const Session& session);

}  // namespace tessera
