#include "apps/run_device.h"

#include "backends/cuda/cuda_backend.h"
#include "backends/xla/plugin_search.h"
#include "backends/xla/xla_backend.h"
#include "base/text.h"

namespace tessera {
namespace {

std::unique_ptr<xla::XlaBackend> open_xla(const RunConfig& config, const JobConnection& job) {
  if (xla::kind_of_environment() != xla::PluginKind::kCpu)
    throw UserError(
        "--device_type xla runs on XLA's CPU: unset PJRT_DEVICE, or set it to CPU. For GPUs "
        "tessera plan --device_type xla --target compiles ahead of time");
  if (job.member && job.member->local_world_size != job.member->world_size)
    throw UserError(cat("--device_type xla: XLA's CPU has its ranks on one host, and of the ",
                        job.member->world_size, " ranks of this job ", job.member->local_world_size,
                        " are here: give --nnodes 1"));
  xla::XlaBackend::Options options;
  options.cache = config.cache_dir;
  if (!job.member || job.member->rank == 0)
    options.plugin = xla::find_plugin(config.xla_plugin, xla::PluginKind::kCpu);
  return std::make_unique<xla::XlaBackend>(options, job.channels.control.get());
}

// Of the GPUs that the driver shows to this process: its only one, where a launcher has dealt them
// out, or that of the rank's number on its host.
std::unique_ptr<cuda::CudaBackend> open_cuda(const RunConfig& config, const JobConnection& job) {
  cuda::CudaBackend::Options options;
  const bool dealt_out = cuda::list_gpus(cuda::Driver::get()).size() == 1;
  if (job.member && !dealt_out) options.gpu = job.member->local_rank;
  options.control = job.channels.control.get();
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(config.comm_timeout * 1000));
  return std::make_unique<cuda::CudaBackend>(options);
}

}  // namespace

RunDevice open_device(const RunConfig& config, bool measure_peak, const JobConnection& job) {
  RunDevice opened;
  opened.cpu = open_cpu(config, job);
  opened.device = device_of(*opened.cpu, config, measure_peak, job);
  if (config.device_type == "cuda") {
    auto cuda = open_cuda(config, job);
    opened.device.backend = cuda.get();
    opened.device.description = cuda->description();
    opened.device.kind = "cuda";
    opened.device.memory = cuda->device().free_bytes();
    // What the CPU reaches says nothing of a GPU.
    opened.device.measure_light = {};
    if (!config.peak_tflops_per_gpu) opened.device.peak = {};
    opened.other = std::move(cuda);
    return opened;
  }
  if (config.device_type != "xla") return opened;
  auto xla = open_xla(config, job);
  opened.device.backend = xla.get();
  opened.device.description = xla->description();
  opened.device.kind = "xla";
  opened.other = std::move(xla);
  return opened;
}

}  // namespace tessera
