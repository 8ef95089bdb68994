#pragma once
#include <vector>

#include "passes/flat_units.h"
#include "programs/program_options.h"

namespace tessera {

// Which micro-batch of a step a gradient program is for: the first overwrites the sums of the step
// before, the last reduces those of gradients.
struct Turn {
  bool first = true, last = true;
};

// Appends the gradients of loss_sum + z_loss square_sum, times the loss scale where there is one,
// and turns results into state updates; outputs are dropped.
//
// A slot takes its gradient where it is made: at the end, the gradients of all units would be live
// together. There it is reduced, too, beside what is left of the backward pass; the slot keeps its
// type. What is added up whole is left to `apply`: the reduced piece has no slot of its own.
Graph differentiate(const Graph& forward, const std::vector<FlatUnit>& units,
                    const ProgramOptions& options, Turn turn);

// What loss_sum is multiplied by beside the loss scale: the number of tokens, as a power of two so
// that it changes no bit.
double one_token_share(const ProgramOptions& options);

// A sum of gradients has a rank's own piece of the unit, or with unsharded accumulation all of it.
bool is_own_piece(const Graph& graph, Value gradient, const FlatUnit& unit);

// The axes over which a gradient varies and its parameter does not: it is summed over exactly
// those.
AxisSet axes_of_copies(const Graph& graph, Value gradient, const FlatUnit& unit,
                       const ShardAxes& axes);
Value sum_over_copies(Graph& graph, Value gradient, const FlatUnit& unit, const ShardAxes& axes);

// Whether the last gradient program has something to reduce; `accumulate` is another.
bool reduces_gradients(const Graph& accumulate, const std::vector<FlatUnit>& units,
                       const ShardAxes& axes);

}  // namespace tessera
