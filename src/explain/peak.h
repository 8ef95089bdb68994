#pragma once
#include <string>
#include <vector>

#include "programs/session.h"

namespace tessera {

// An instruction of a plan with what is live near while it runs.
struct InstructionMemory {
  int64_t number = 0;  // in the plan
  int32_t node = -1;
  std::string text;  // "linear in layers.0.mlp (forward)", "copy 64 B for ..."
  std::string made;  // types of what it makes
  int64_t live = 0;
  bool peak = false;  // of the node at which most is live
};

// The instructions of the plan's peak and `around` before and behind it.
std::vector<InstructionMemory> around_peak(const Graph& graph, const Plan& plan, int around);

// Memory over the program in at most `columns` columns, the instructions around the peak below.
std::string peak_text(const Session::Program& program, int columns);

}  // namespace tessera
