#include "apps/run_device.h"

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

}  // namespace

RunDevice open_device(const RunConfig& config, bool measure_peak, const JobConnection& job) {
  RunDevice opened;
  opened.cpu = open_cpu(config, job);
  opened.device = device_of(*opened.cpu, config, measure_peak, job);
  if (config.device_type != "xla") return opened;
  auto xla = open_xla(config, job);
  opened.device.backend = xla.get();
  opened.device.description = xla->description();
  opened.device.kind = "xla";
  opened.other = std::move(xla);
  return opened;
}

}  // namespace tessera
