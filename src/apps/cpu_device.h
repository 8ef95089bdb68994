#pragma once
#include <memory>

#include "apps/job_connection.h"
#include "backends/cpu/cpu_backend.h"
#include "train/run_config.h"
#include "train/training_run.h"

namespace tessera {

// The CPU backend that the options ask for: --threads (default: the cores of this process, shared
// among the ranks of the host), --cpu_isa.
std::unique_ptr<cpu::CpuBackend> open_cpu(const RunConfig& config, const JobConnection& job = {});
// The same as what a training run is given. Measures the matrix peak (some 50 ms) if
// `measure_peak`.
Device device_of(cpu::CpuBackend& backend, const RunConfig& config, bool measure_peak,
                 const JobConnection& job = {});

// FLOP/s of the backend's own matrix product of 1024 x 1024 x 1024: the best of a few. What `Peak`
// in the progress line is a share of, unless --peak_tflops_per_gpu is given.
double measure_matrix_peak(cpu::CpuBackend& backend, DType dtype);

}  // namespace tessera
