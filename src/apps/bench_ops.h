#pragma once
#include "backends/cpu/cpu_backend.h"
#include "models/model_config.h"
#include "options/run_config.h"
#include "profile/speed_of_light.h"

namespace tessera {

// Of all threads of the pool; takes some tenths of a second.
SpeedOfLight measure_speed_of_light(cpu::CpuBackend& backend);

// With --document_mask: rows [rows, length] of documents of 256 tokens (passes/document_mask.h).
std::vector<int32_t> bench_document_starts(int64_t rows, int64_t length);

// `tessera bench ops`: every distinct node of the model's programs, alone, on buffers of its own.
int bench_ops(const RunConfig& config, const ModelConfig& model);

}  // namespace tessera
