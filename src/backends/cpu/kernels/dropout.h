#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"
#include "base/random_lines.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// y = x * scale where random_bits16(row_keys[b], stream, n) >= threshold, else 0; scale is 1 / (1 -
// threshold / 65536). Element n of row b is counted as RandomLines says. Computed in f32, rounded
// once. y may be x.
struct Dropout {
  DType dtype;    // of x and y: kF32 or kBF16
  const void* x;  // [rows, lines.lines(), lines.width()]
  void* y;
  const int64_t* row_keys;  // [rows]
  uint64_t stream;
  int32_t threshold;  // in [0, 65536)
  int64_t rows;
  RandomLines lines;
};
void dropout(const Dropout& args, Isa isa, ThreadPool& pool);

// One line: `n` elements, the first of them number `first` of the row.
TESSERA_DECLARE_PER_ISA(void dropout_line(DType dtype, const void* x, void* y, int64_t n,
                                          uint64_t key, uint64_t stream, int64_t first,
                                          int32_t threshold, float scale))

}  // namespace tessera::cpu
