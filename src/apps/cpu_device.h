#pragma once
#include <memory>

#include "apps/job_connection.h"
#include "backends/cpu/cpu_backend.h"
#include "options/run_config.h"
#include "planning/job_plan.h"
#include "train/training_run.h"

namespace tessera {

// The CPU backend that the options ask for, or, beside another device, the host's part: --threads
// (default: the cores of this process, shared among the ranks of the host), --cpu_isa.
std::unique_ptr<cpu::CpuBackend> open_cpu(const RunConfig& config, const JobConnection& job = {});
// The same as what a training run is given. Measures the matrix peak (some 50 ms) if
// `measure_peak`.
Device device_of(cpu::CpuBackend& backend, const RunConfig& config, bool measure_peak,
                 const JobConnection& job = {});

// The device of --device_type, --target, --cpu_isa and --threads (default: the cores of this
// machine, shared among the ranks of a host) for which a job is planned, on any machine: nothing
// can be run on it. Without --target a GPU is this host's if its data sheet is known, else an H100.
class PlannedDevice {
 public:
  explicit PlannedDevice(const RunConfig& config);
  PlannedDevice(const PlannedDevice&) = delete;
  PlannedDevice& operator=(const PlannedDevice&) = delete;
  const PlanTarget& target() const { return target_; }

 private:
  void plan_gpu(const RunConfig& config);

  std::unique_ptr<Backend> backend_, without_libraries_;
  PlanTarget target_;
};

// FLOP/s of the backend's own matrix product of 1024 x 1024 x 1024: the best of a few. What `Peak`
// in the progress line is a share of, unless --peak_tflops_per_gpu is given; measured again where a
// step turns out to be faster.
double measure_matrix_peak(cpu::CpuBackend& backend, DType dtype);

}  // namespace tessera
