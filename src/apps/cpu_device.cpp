#include "apps/cpu_device.h"

#include <algorithm>
#include <climits>

#include "apps/bench_ops.h"
#include "apps/gpu_kernels.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cuda/described_backend.h"
#include "backends/cuda/installed_cuda.h"
#include "base/clock.h"

namespace tessera {

namespace {

int threads_of(const RunConfig& config, int64_t ranks_on_host) {
  int share = available_cores() / static_cast<int>(std::min<int64_t>(ranks_on_host, INT_MAX));
  return static_cast<int>(config.threads.value_or(std::max(1, share)));
}

// f16 is computed in f32.
DType matrix_dtype(const RunConfig& config) {
  return compute_dtype(config) == DType::kBF16 ? DType::kBF16 : DType::kF32;
}

std::string threads_text(int threads) {
  return cat(threads, threads == 1 ? " thread" : " threads");
}

// FLOP/s of a thread to plan with: the order of magnitude of what servers' cores reach.
double nominal_thread_flops(cpu::Isa isa, DType dtype) {
  switch (isa) {
    case cpu::Isa::kPortable: return 1e10;
    case cpu::Isa::kAvx2: return 5e10;
    case cpu::Isa::kAvx512: return 1e11;
    case cpu::Isa::kAvx512Bf16: return dtype == DType::kBF16 ? 2e11 : 1e11;
    case cpu::Isa::kAmx: return dtype == DType::kBF16 ? 1e12 : 2.5e11;
    case cpu::Isa::kNeonBf16: return dtype == DType::kBF16 ? 2e11 : 5e10;
  }
  return 1e10;
}

struct PlannedGpu {
  const DeviceSheet& sheet;
  std::string origin;  // where nobody named it and this host has a GPU
};

// The one that is named, else this host's where its sheet is known, else an H100.
PlannedGpu planned_gpu(const std::string& target) {
  if (target != "none") return {device_sheet(target), ""};
  const auto gpus = cuda::shown_gpus();
  if (gpus.empty()) return {device_sheet("h100"), ""};
  if (const DeviceSheet* own = device_sheet_of(gpus[0].name)) return {*own, ", as on this host"};
  return {device_sheet("h100"), cat(", in place of this host's ", gpus[0].name)};
}

// Programs as a device without kernels here would run them, and no way to run them.
class WithoutKernels final : public Backend {
 public:
  std::unique_ptr<Executable> compile(const Graph& graph) override {
    Graph expanded = portable_.compile(graph)->graph();
    // Slots are XLA's own arrays there: nothing else lies in them.
    Plan plan = make_plan(expanded, {}, {.lodging = false});
    std::vector<Launch> launches(expanded.nodes().size());
    return std::make_unique<HostExecutable>(std::move(expanded), std::move(plan),
                                            std::move(launches));
  }
  std::unique_ptr<State> make_state() override { throw InternalError("a device to plan with"); }
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory&) override {
    throw InternalError("a device to plan with");
  }

 private:
  // Nothing of this machine's processor is in the plan of another device.
  cpu::CpuBackend portable_{1, cpu::Isa::kPortable};
};

}  // namespace

std::unique_ptr<cpu::CpuBackend> open_cpu(const RunConfig& config, const JobConnection& job) {
  cpu::Isa isa = cpu::isa_from_name(config.cpu_isa);
  cpu::require_isa(isa);
  int threads = threads_of(config, job.member ? job.member->local_world_size : 1);
  // Slurm may have dealt out the cores already: then those that are here are this rank's alone.
  if (job.member && job.member->slurm && job.member->slurm->cores > 0 && !config.threads)
    threads = std::min(available_cores(), job.member->slurm->cores);
  return std::make_unique<cpu::CpuBackend>(threads, isa, job.channels.communicator.get());
}

PlannedDevice::PlannedDevice(const RunConfig& config) {
  const bool is_cpu = config.device_type == "auto" || config.device_type == "cpu";
  if (is_cpu) {
    cpu::Isa isa = cpu::isa_from_name(config.cpu_isa);
    int threads = threads_of(config, std::min(planned_world(config), config.ranks_per_host));
    backend_ = std::make_unique<cpu::CpuBackend>(threads, isa);
    target_.backend = backend_.get();
    target_.description =
        cat("CPU, ", name(isa), ", ", threads_text(threads),
            " a rank (--cpu_isa, --threads), on which the workspaces of kernels depend");
    target_.peak_flops = threads * nominal_thread_flops(isa, matrix_dtype(config));
    return;
  }
  if (config.device_type == "cuda") {
    plan_gpu(config);
    return;
  }
  backend_ = std::make_unique<WithoutKernels>();
  target_.backend = backend_.get();
  target_.description = "XLA, which lays out memory by itself";
  target_.exact = false;
  target_.peak_flops = 459e12;  // a TPU v5p's
  if (config.target != "none") {
    target_.description = cat(config.target, " with XLA, whose figures stand below");
    target_.peak_flops = device_sheet(config.target).matrix_flops;
  }
}

void PlannedDevice::plan_gpu(const RunConfig& config) {
  using Products = cuda::DescribedBackend::Products;
  using Attentions = cuda::DescribedBackend::Attentions;
  const auto sums = config.reproducible ? cuda::SumOrder::kRanks : cuda::SumOrder::kLibrary;
  const PlannedGpu planned = planned_gpu(config.target);
  target_.sheet = planned.sheet;
  // What cuDNN is asked about is Hopper.
  const bool is_hopper = target_.sheet->capability >= 90;
  const Attentions attentions = is_hopper ? Attentions::kCudnn : Attentions::kOwn;
  auto described = std::make_unique<cuda::DescribedBackend>(cuda::DescribedBackend::Options{
      .products = Products::kCublasLt,
      .attentions = attentions,
      .sums = sums,
      .capability = target_.sheet->capability,
      .gpu = cuda::choice_device(target_.sheet->driver_name),
      .choices = cuda::ProductChoices::of_folder(config.cache_dir)});
  target_.kernels_text = [gpu = described.get(), capability = target_.sheet->capability,
                          micro_batches =
                              config.gradient_accumulation_steps](const Session& session) {
    return gpu_kernels_text(*gpu, session, micro_batches, capability);
  };
  target_.description = cat(target_.sheet->name, planned.origin,
                            ", by its data sheet; attention by ", described->attention());
  backend_ = std::move(described);
  without_libraries_ = std::make_unique<cuda::DescribedBackend>(cuda::DescribedBackend::Options{
      .attentions = attentions, .sums = sums, .capability = target_.sheet->capability});
  target_.backend = backend_.get();
  target_.without_libraries = without_libraries_.get();
  target_.peak_flops =
      matrix_dtype(config) == DType::kBF16 ? target_.sheet->matrix_flops : target_.sheet->f32_flops;
}

double measure_matrix_peak(cpu::CpuBackend& backend, DType dtype) {
  constexpr int64_t kSize = 1024;
  cpu::MatmulProblem problem{.m = kSize,
                             .n = kSize,
                             .k = kSize,
                             .transpose_b = true,
                             .a = dtype,
                             .b = dtype,
                             .c = dtype,
                             .lda = kSize,
                             .ldb = kSize,
                             .ldc = kSize};
  auto matmul = cpu::make_matmul(problem, backend.isa());
  HostBuffer a(kSize * kSize * 4), b(kSize * kSize * 4), c(kSize * kSize * 4),
      workspace(matmul->workspace_bytes(backend.pool().threads()));
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    double start = monotonic_seconds();
    matmul->run(backend.pool(), a.data(), b.data(), c.data(), workspace.data(), nullptr,
                cpu::kPastCaches);
    best = std::max(best, static_cast<double>(matmul->flops()) / (monotonic_seconds() - start));
  }
  return best;
}

Device device_of(cpu::CpuBackend& backend, const RunConfig& config, bool measure_peak,
                 const JobConnection& job) {
  Device device;
  device.backend = &backend;
  device.pool = &backend.pool();
  device.description =
      cat("CPU, ", threads_text(backend.pool().threads()), ", ", name(backend.isa()));
  device.control = job.channels.control.get();
  device.communicator = job.channels.communicator.get();
  device.measure_light = [&backend] { return measure_speed_of_light(backend); };
  if (job.member) {
    device.ranks_per_host = job.member->local_world_size;
    device.host_id = job.member->host_id;
    device.first_on_host = job.member->local_rank == 0;
    device.job_id = job.member->id;
    device.attempt = job.member->attempt;
  }
  if (config.peak_tflops_per_gpu)
    device.peak = MachinePeak(*config.peak_tflops_per_gpu * 1e12);
  else if (measure_peak)
    device.peak = MachinePeak(
        [&backend, dtype = matrix_dtype(config)] { return measure_matrix_peak(backend, dtype); });
  return device;
}

}  // namespace tessera
