#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "runtime/communicator.h"

namespace tessera {

// y[e] = x[0][e] + x[1][e] + ..., in that order: f32 and bf16 in f32, f64 in f64, each rounded once
// to the output; integers exact (modulo 2^bits). kMax likewise, where NaN stays NaN. The one
// definition of a sum for all transports: their results are equal to the bit. y may be one of the
// x.
//   dtype f32, f64, i32, i64   output_dtype the same
//   dtype bf16                 output_dtype bf16 or f32
// InternalError for other combinations.
void combine_in_rank_order(Reduction reduction, DType dtype, DType output_dtype,
                           const std::byte* const* x, int count, std::byte* y, int64_t n);

}  // namespace tessera
