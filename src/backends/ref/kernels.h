#pragma once
#include <span>
#include <string_view>

#include "backends/ref/interpreter.h"

namespace tessera::ref {

// Computes `outputs` (types set, data sized) from `inputs` on one rank. No rounding: the caller
// does it.
using Kernel = void (*)(const Op& op, std::span<const Tensor* const> inputs,
                        std::span<Tensor> outputs);

// nullptr for ops that are not primitive.
Kernel find_kernel(std::string_view op_name);

// Rounds an element to what its dtype can hold.
double round_to(DType dtype, double x);

}  // namespace tessera::ref
