#pragma once
#include "backends/cpu/cpu_backend.h"
#include "models/model_config.h"
#include "options/run_config.h"

namespace tessera {

// Ceilings of this machine with all threads of the pool, measured in some tenths of a second.
struct SpeedOfLight {
  double matrix_bf16 = 0, matrix_f32 = 0;  // FLOP/s of the best product of 1024^3
  double bandwidth = 0;  // bytes/s of a copy of 64 MiB, read and written bytes counted

  // The least time for so much arithmetic, of matrix units or not (Op::contracts), and traffic.
  double seconds(bool contracts, double flops, double bytes, DType dtype) const;
  // Takes note of a launch that was faster than what was measured: no ceiling then. Only traffic of
  // the size that was measured counts, less may lie in caches.
  void reached(bool contracts, double flops, double bytes, double seconds, DType dtype);
};
SpeedOfLight measure_speed_of_light(cpu::CpuBackend& backend);

// With --document_mask: rows [rows, length] of documents of 256 tokens (passes/document_mask.h).
std::vector<int32_t> bench_document_starts(int64_t rows, int64_t length);

// `tessera bench ops`: every distinct node of the model's programs, alone, on buffers of its own.
int bench_ops(const RunConfig& config, const ModelConfig& model);

}  // namespace tessera
