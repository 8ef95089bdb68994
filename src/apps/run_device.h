#pragma once
#include <memory>

#include "apps/cpu_device.h"
#include "apps/job_connection.h"
#include "options/run_config.h"
#include "train/training_run.h"

namespace tessera {

// The device of --device_type, ready to run programs, as a training run is given it.
struct RunDevice {
  std::unique_ptr<cpu::CpuBackend> cpu;  // also beside another device: what the host computes
  std::unique_ptr<Backend> other;
  Device device;
};

// UserError for a device that is not here. `measure_peak`: whether the matrix peak is measured
// (some 50 ms) where --peak_tflops_per_gpu does not say it. All ranks of a job make the call.
RunDevice open_device(const RunConfig& config, bool measure_peak, const JobConnection& job = {});

}  // namespace tessera
