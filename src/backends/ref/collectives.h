#pragma once
#include "backends/ref/interpreter.h"

namespace tessera::ref {

// Runs one collective for all ranks: inputs and outputs by rank, output types set and data sized.
// inputs is empty for axis_index.
void run_collective(const Op& op, const Mesh& mesh, const std::vector<const Tensor*>& inputs,
                    std::vector<Tensor>& outputs);

}  // namespace tessera::ref
