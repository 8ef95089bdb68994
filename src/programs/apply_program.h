#pragma once
#include <vector>

#include "optim/optimizer.h"
#include "passes/flat_units.h"
#include "programs/program_options.h"

namespace tessera {

// The program of one update, on the slots as `accumulate` and the others like it leave them. Frozen
// units have no part.
Graph apply_program(const std::vector<FlatUnit>& units, const ProgramOptions& options,
                    const Optimizer& optimizer, const Graph& accumulate);

// The program that makes the weights of compute anew, for masters that the host has written. Empty
// where there are none.
Graph round_weights_program(const std::vector<FlatUnit>& units, const Parallelism& parallelism);

// Appends to a program of several ranks how all of them hear, with what it exchanges anyway, that
// one was asked to end the run: the argument and result kStopRequests.
void exchange_stop_requests(Graph& graph);

}  // namespace tessera
