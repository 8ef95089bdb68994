#include "apps/run_device.h"

#include <algorithm>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/installed_cuda.h"
#include "backends/xla/cuda_files.h"
#include "backends/xla/device_backend.h"
#include "backends/xla/plugin_search.h"
#include "backends/xla/xla_backend.h"
#include "base/error.h"
#include "base/text.h"
#include "planning/device_sheet.h"

namespace tessera {
namespace {

// What the description of a device says, and what opened it.
struct Opened {
  std::unique_ptr<Backend> backend;
  std::string description;
};

Opened open_xla_cpu(const RunConfig& config, const JobConnection& job) {
  if (job.member && job.member->local_world_size != job.member->world_size)
    throw UserError(cat("--device_type xla: XLA's CPU has its ranks on one host, and of the ",
                        job.member->world_size, " ranks of this job ", job.member->local_world_size,
                        " are here: give --nnodes 1"));
  xla::XlaBackend::Options options;
  options.cache = config.cache_dir;
  if (!job.member || job.member->rank == 0)
    options.plugin = xla::find_plugin(config.xla_plugin, xla::PluginKind::kCpu);
  auto backend = std::make_unique<xla::XlaBackend>(options, job.channels.control.get());
  const std::string description = backend->description();
  return {std::move(backend), description};
}

Opened open_xla_gpu(const RunConfig& config, const JobConnection& job) {
  if (config.reproducible && job.member && job.member->world_size > 1)
    throw UserError(
        "--reproducible: XLA takes sums between GPUs in an order of its own; --device_type cuda "
        "takes them in rank order");
  xla::DeviceBackend::Options options;
  options.plugin = xla::find_plugin(config.xla_plugin, xla::PluginKind::kCuda);
  options.cache = config.cache_dir;
  options.gpu.emplace();
  if (job.member) options.gpu = {job.member->rank, job.member->world_size, job.member->local_rank};
  if (job.store) {
    const std::chrono::milliseconds deadline(static_cast<int64_t>(config.comm_timeout * 1000));
    auto store = std::make_shared<PrefixStore>(job.store, "xla/");
    options.values = {
        .get =
            [store, deadline](const std::string& key, std::chrono::milliseconds timeout) {
              return store->get(key, std::min(timeout, deadline));
            },
        .find = [store](const std::string& key) { return store->find(key); },
        .put = [store](const std::string& key,
                       const std::string& value) { store->set(key, value); }};
  }
  xla::use_cuda_files(xla::find_cuda_files(xla::cuda_roots(options.plugin)));
  auto backend = std::make_unique<xla::DeviceBackend>(std::move(options));
  const std::string description = backend->description();
  return {std::move(backend), description};
}

// Of the GPUs that the driver shows to this process: its only one, where a launcher has dealt them
// out, or that of the rank's number on its host.
std::unique_ptr<cuda::CudaBackend> open_cuda(const RunConfig& config, const JobConnection& job) {
  cuda::CudaBackend::Options options;
  const bool dealt_out = cuda::list_gpus(cuda::Driver::get()).size() == 1;
  if (job.member && !dealt_out) options.gpu = job.member->local_rank;
  options.control = job.channels.control.get();
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(config.comm_timeout * 1000));
  options.choices = cuda::ProductChoices::of_folder(config.cache_dir);
  if (job.member) options.host = job.member->host_id;
  if (config.reproducible) options.sums = cuda::SumOrder::kRanks;
  return std::make_unique<cuda::CudaBackend>(options);
}

}  // namespace

void choose_device(ParsedOptions& parsed) {
  RunConfig& config = parsed.config;
  if (config.device_type != "auto" || parsed.is_given("cpu_isa")) return;
  const std::vector<cuda::GpuFacts> gpus = cuda::shown_gpus();
  if (gpus.empty()) return;
  if (cuda::has_kernels()) {
    config.device_type = "cuda";
    parsed.notes.push_back(
        cat("Device: ", gpus[0].name, ", since there is a GPU; --device_type cpu leaves it alone"));
  } else {
    parsed.warnings.push_back(
        cat("this host has a GPU (", gpus[0].name,
            "), for which this build of tessera has no kernels: it runs on the CPU. docs/cuda.md "
            "says how to build them; --device_type cpu says that the CPU is meant"));
  }
}

RunDevice open_device(const RunConfig& config, bool measure_peak, const JobConnection& job) {
  RunDevice opened;
  opened.cpu = open_cpu(config, job);
  opened.device = device_of(*opened.cpu, config, measure_peak, job);
  if (config.device_type == "cuda" || config.device_type == "xla")
    opened.device.communicator = nullptr;  // exchanges are the device's, and so are their waits
  if (config.device_type == "cuda") {
    auto cuda = open_cuda(config, job);
    opened.device.backend = cuda.get();
    opened.device.description = cuda->description();
    opened.device.kind = "cuda";
    opened.device.memory = cuda->device().free_bytes();
    // What the CPU reaches says nothing of a GPU; a data sheet does, where it is known.
    opened.device.measure_light = {};
    if (const DeviceSheet* sheet = device_sheet_of(cuda->device().facts().name))
      opened.device.measure_light = [sheet] {
        return SpeedOfLight{sheet->matrix_flops, sheet->f32_flops, sheet->memory_bandwidth};
      };
    if (!config.peak_tflops_per_gpu) opened.device.peak = {};
    opened.other = std::move(cuda);
    return opened;
  }
  if (config.device_type != "xla") return opened;
  const bool on_gpu = xla::kind_of_environment() == xla::PluginKind::kCuda;
  Opened xla = on_gpu ? open_xla_gpu(config, job) : open_xla_cpu(config, job);
  if (on_gpu) {
    opened.device.measure_light = {};
    if (!config.peak_tflops_per_gpu) opened.device.peak = {};
  }
  opened.device.backend = xla.backend.get();
  opened.device.description = xla.description;
  opened.device.kind = "xla";
  opened.other = std::move(xla.backend);
  return opened;
}

}  // namespace tessera
