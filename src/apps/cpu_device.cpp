#include "apps/cpu_device.h"

#include <algorithm>

#include "backends/cpu/kernels/matmul.h"
#include "base/clock.h"

namespace tessera {

std::unique_ptr<cpu::CpuBackend> open_cpu(const RunConfig& config, const JobConnection& job) {
  if (config.device_type != "auto" && config.device_type != "cpu") {
    throw UserError(
        cat("--device_type ", config.device_type, ": this build has the CPU backend only"));
  }
  int ranks = job.member ? job.member->local_world_size : 1;
  auto threads = static_cast<int>(config.threads.value_or(std::max(1, available_cores() / ranks)));
  return std::make_unique<cpu::CpuBackend>(threads, cpu::isa_from_name(config.cpu_isa),
                                           job.communicator.get());
}

double measure_matrix_peak(cpu::CpuBackend& backend, DType dtype) {
  constexpr int64_t kSize = 1024;
  cpu::MatmulProblem problem{kSize, kSize, kSize, false, true,  dtype,
                             dtype, dtype, kSize, kSize, kSize, false};
  auto matmul = cpu::make_matmul(problem, backend.isa());
  HostBuffer a(kSize * kSize * 4), b(kSize * kSize * 4), c(kSize * kSize * 4),
      workspace(matmul->workspace_bytes(backend.pool().threads()));
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    double start = monotonic_seconds();
    matmul->run(backend.pool(), a.data(), b.data(), c.data(), workspace.data());
    best = std::max(best, static_cast<double>(matmul->flops()) / (monotonic_seconds() - start));
  }
  return best;
}

Device device_of(cpu::CpuBackend& backend, const RunConfig& config, bool measure_peak,
                 const JobConnection& job) {
  Device device;
  device.compile = [&backend](const Graph& graph) { return backend.compile(graph); };
  device.pool = &backend.pool();
  device.description = cat("CPU, ", backend.pool().threads(), " thread",
                           backend.pool().threads() == 1 ? "" : "s", ", ", name(backend.isa()));
  device.communicator = job.communicator.get();
  if (job.member) {
    device.ranks_per_host = job.member->local_world_size;
    device.first_on_host = job.member->local_rank == 0;
  }
  if (config.peak_tflops_per_gpu)
    device.peak_flops = *config.peak_tflops_per_gpu * 1e12;
  else if (measure_peak)
    device.peak_flops = measure_matrix_peak(
        backend, compute_dtype(config) == DType::kBF16 ? DType::kBF16 : DType::kF32);
  return device;
}

}  // namespace tessera
