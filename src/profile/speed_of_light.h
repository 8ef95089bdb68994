#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace tessera {

// Ceilings of this machine with all threads of a rank, as they were measured.
struct SpeedOfLight {
  double matrix_bf16 = 0, matrix_f32 = 0;  // FLOP/s of the best product of 1024^3
  double bandwidth = 0;  // bytes/s of a copy of 64 MiB, read and written bytes counted

  // Bytes that a copy reads or writes at least for its speed to be that of memory, not of caches.
  static constexpr int64_t kCopiedBytes = 64 << 20;

  // The least time for so much arithmetic, of matrix units or not (Op::contracts), and traffic.
  double seconds(bool contracts, double flops, double bytes, DType dtype) const;
  // Takes note of a launch that was faster than what was measured: no ceiling then. Only traffic of
  // the size that was measured counts, less may lie in caches.
  void reached(bool contracts, double flops, double bytes, double seconds, DType dtype);
};

}  // namespace tessera
