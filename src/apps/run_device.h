#pragma once
#include <memory>

#include "apps/cpu_device.h"
#include "apps/job_connection.h"
#include "options/option_parser.h"
#include "train/training_run.h"

namespace tessera {

// The device of --device_type, ready to run programs, as a training run is given it.
struct RunDevice {
  std::unique_ptr<cpu::CpuBackend> cpu;  // also beside another device: what the host computes
  std::unique_ptr<Backend> other;
  Device device;
};

// What --device_type auto is on this host: cuda where the driver shows GPUs and this program has
// kernels for them, which a note says; else auto stays, the CPU, with a warning where it leaves
// GPUs idle. --cpu_isa asks for the CPU.
void choose_device(ParsedOptions& parsed);

// UserError for a device that is not here. `measure_peak`: whether the matrix peak is measured
// (some 50 ms) where --peak_tflops_per_gpu does not say it. All ranks of a job make the call.
RunDevice open_device(const RunConfig& config, bool measure_peak, const JobConnection& job = {});

}  // namespace tessera
