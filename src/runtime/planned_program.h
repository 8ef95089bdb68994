#pragma once
#include <vector>

#include "plan/plan.h"
#include "runtime/executable.h"
#include "runtime/kernel_table.h"

namespace tessera {

// A graph made ready for the kernels of a table, wherever they run.
struct PlannedProgram {
  Graph graph;  // after decomposition
  Plan plan;
  std::vector<Launch> launches;  // by node; without a function where the node is storage only
  std::vector<Declined> declined;
};

// What no kernel takes is decomposed, kernels are prepared, the plan is made and verified.
// UserError for a primitive without a kernel.
PlannedProgram plan_program(const Graph& graph, const KernelTable& table,
                            const PlanOptions& options = {});

}  // namespace tessera
