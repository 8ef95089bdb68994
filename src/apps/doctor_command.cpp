#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/commands.h"
#include "apps/cpu_device.h"
#include "apps/own_options.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/installed_cuda.h"
#include "backends/xla/installed_plugins.h"
#include "base/file.h"
#include "doctor/directory_check.h"
#include "doctor/doctor_report.h"
#include "doctor/host_facts.h"
#include "doctor/link_check.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera doctor [OPTIONS]

Looks at the hosts of a job before it is started: cores, memory and limits, clocks, networks and accelerators, plug-ins
of XLA, bandwidth and latency between all pairs of ranks, speed of directories and whether all see the same files there, and
the speed of a matrix product on every rank. Prints one page, with a warning for everything that is wrong or stands out, and by which rank and
host. Exit status 0: nothing stands out; 1: there are warnings. By itself it looks at this host.

Examples
  tessera doctor --directory checkpoints
  tessera run --nnodes 2 --nproc_per_node 1 --rdzv_endpoint node1:29500 doctor --directory /shared --json doctor.json
  srun --nodes 4 --ntasks-per-node 1 tessera doctor --directory /shared

Options
)";

struct Doctor {
  std::vector<std::string> directories;
  std::string json;
  int64_t file_bytes = 64 << 20, link_bytes = 16 << 20;
  std::string backend = "auto";
  int64_t threads = 0;
  double timeout = 60;
};

using Text = const std::string&;

constexpr CommandOption<Doctor> kOptions[] = {
    {"directory", "d", "PATH", "look at this directory, too; several times for several",
     [](Doctor& o, Text v, Text) { o.directories.push_back(v); }},
    {"json", "", "FILE",
     "write all that was found as JSON; - is standard output, in place of the page",
     [](Doctor& o, Text v, Text) { o.json = v; }},
    {"file_bytes", "", "BYTES", "that each rank writes and reads in a directory, default 64M",
     [](Doctor& o, Text v, Text s) { o.file_bytes = byte_count(v, 4096, s); }},
    {"link_bytes", "", "BYTES", "that a pair of ranks exchanges at once, default 16M",
     [](Doctor& o, Text v, Text s) { o.link_bytes = byte_count(v, 4096, s); }},
    {"distributed_backend", "", "NAME", "auto, shared_memory or gloo, default auto",
     [](Doctor& o, Text v, Text s) {
       o.backend = one_of({"auto", "shared_memory", "gloo"}, v, s);
     }},
    {"threads", "", "N", "of a rank for its matrix product, default: its share of the cores",
     [](Doctor& o, Text v, Text s) { o.threads = number<int64_t>(v, 1, kNoMaximum, s); }},
    {"comm_timeout", "", "SECONDS", "what takes longer between ranks has failed, default 60",
     [](Doctor& o, Text v, Text s) { o.timeout = seconds(v, s); }},
};

nlohmann::json plugins_found() {
  nlohmann::json list = nlohmann::json::array();
  for (const xla::InstalledPlugin& plugin : xla::installed_plugins()) {
    list.push_back({{"kind", xla::name(plugin.kind)},
                    {"path", plugin.path.string()},
                    {"interface", plugin.interface},
                    {"error", plugin.error},
                    {"text", xla::to_string(plugin)}});
  }
  return list;
}

nlohmann::json cuda_found() {
  const cuda::InstalledCuda cuda = cuda::installed_cuda();
  nlohmann::json gpus = nlohmann::json::array();
  for (const cuda::GpuFacts& gpu : cuda.gpus) gpus.push_back(cuda::to_string(gpu));
  return {{"has_kernels", cuda.has_kernels},
          {"kernels", cuda::kernels_text(cuda)},
          {"has_driver", cuda.has_driver},
          {"driver", cuda.driver},
          {"gpus", gpus},
          {"cublaslt", cuda.cublaslt},
          {"cudnn", cuda.cudnn},
          {"nccl", cuda.nccl}};
}

// JSON takes UTF-8 only, and names of files and hosts may be anything.
std::string to_text(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json found_by(const Doctor& doctor, const JobConnection& job, const RunConfig& config,
                        const nlohmann::json& plugins) {
  Control* control = job.channels.control.get();
  auto backend = open_cpu(config, job);
  nlohmann::json own = host_facts();
  own["xla_plugins"] = plugins;
  own["cuda"] = cuda_found();
  own["isa"] = std::string(name(backend->isa()));
  own["threads"] = backend->pool().threads();
  if (control) control->barrier("matrix product");  // all at once, as in training
  own["matrix_flops"] = measure_matrix_peak(*backend, DType::kF32);
  std::vector<double> offsets{0};
  std::vector<std::string> all{to_text(own)};
  nlohmann::json found{{"ranks", nlohmann::json::array()},
                       {"links", nlohmann::json::array()},
                       {"directories", nlohmann::json::array()}};
  if (control) {
    offsets = clock_offsets(*control);
    all = control->exchange("hosts", to_text(own));
    for (const Link& link : measure_links(job.channels, doctor.link_bytes)) {
      found["links"].push_back({{"ranks", {link.low, link.high}},
                                {"latency", link.latency},
                                {"bandwidth", link.bandwidth}});
    }
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    found["ranks"].push_back(nlohmann::json::parse(all[rank]));
    found["ranks"].back()["clock_offset"] = offsets[rank];
  }
  for (const std::string& directory : doctor.directories) {
    found["directories"].push_back(
        {{"path", directory}, {"ranks", check_directory(control, directory, doctor.file_bytes)}});
  }
  return found;
}

}  // namespace

std::vector<OptionText> doctor_options() { return texts(kOptions); }

int doctor_command(std::span<const std::string> arguments) {
  Doctor doctor;
  if (!parse_own_options<Doctor>(kOptions, arguments, kHelp, doctor, {.repeated = "directory"}))
    return 0;
  RunConfig config;
  config.distributed_backend = doctor.backend;
  config.comm_timeout = doctor.timeout;
  config.eval_only = true;  // by itself it looks at this host
  if (doctor.threads > 0) config.threads = doctor.threads;
  const nlohmann::json plugins = plugins_found();  // while there is one thread
  const JobConnection job = join_job(config);
  nlohmann::json found = found_by(doctor, job, config, plugins);
  const std::vector<std::string> warnings = doctor_warnings(found);
  if (job.member && job.member->rank > 0) return 0;
  found["warnings"] = warnings;
  if (doctor.json == "-") {
    std::printf("%s\n", to_text(found, 1).c_str());
  } else {
    std::printf("tessera doctor: %zu %s\n\n%s", found["ranks"].size(),
                found["ranks"].size() == 1 ? "process" : "ranks",
                doctor_page(found, warnings).c_str());
    if (!doctor.json.empty()) write_file_atomic(doctor.json, to_text(found, 1) + "\n");
  }
  return warnings.empty() ? 0 : 1;
}

}  // namespace tessera
