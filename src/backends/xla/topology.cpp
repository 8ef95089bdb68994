#include "backends/xla/topology.h"

#include "base/text.h"

namespace tessera::xla {

using pjrt::Function;

namespace {

// Figures of NVIDIA's data sheets and of the CUDA programming guide's table of compute
// capabilities; core clock and memory of an H100 as its driver says.
constexpr std::string_view kH100 = R"(gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
)";
constexpr std::string_view kA100 = R"(gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 167936
  threads_per_core_limit: 2048
  core_count: 108
  fpus_per_core: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 2039000000000
  l2_cache_size: 41943040
  clock_rate_ghz: 1.41
  device_memory_size: 85899345920
  shared_memory_per_block_optin: 166912
  cuda_compute_capability { major: 8 minor: 0 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA A100-SXM4-80GB"
)";

pjrt::NamedValue named(std::string_view name, std::string_view value) {
  pjrt::NamedValue option;
  option.head.struct_size = sizeof(option);
  option.name = name.data();
  option.name_size = name.size();
  option.type = pjrt::NamedValue::Type::kString;
  option.string_value = value.data();
  option.value_size = value.size();
  return option;
}

}  // namespace

std::string_view target_config(const std::string& gpu) {
  if (gpu == "h100") return kH100;
  if (gpu == "a100") return kA100;
  throw UserError(cat("no description of the GPU '", gpu, "': there are those of h100, a100"));
}

Topology::Topology(const Plugin& plugin, std::string_view target_config, int hosts,
                   int devices_per_host)
    : plugin_(plugin) {
  constexpr std::string_view kName = "cuda";
  // Slices, hosts, devices of a host.
  const std::string shape = cat("1x", hosts, "x", devices_per_host);
  const pjrt::NamedValue options[] = {named("target_config", target_config),
                                      named("topology", shape)};
  Call<pjrt::TopologyCreate> create;
  create->name = kName.data();
  create->name_size = kName.size();
  create->options = options;
  create->num_options = std::size(options);
  plugin_.call(Function::kTopologyCreate, create, "describing the devices");
  topology_ = create->topology;
}

Topology::~Topology() {
  Call<pjrt::TopologyDestroy> destroy;
  destroy->topology = topology_;
  plugin_.release(Function::kTopologyDestroy, destroy);
}

TopologyProgram::TopologyProgram(const Topology& topology, const std::string& text, int replicas,
                                 int64_t memory)
    : plugin_(topology.plugin()) {
  const std::string options = compile_options(replicas, memory);
  const pjrt::Program program = program_of(text);
  Call<pjrt::Compile> compile;
  compile->topology = topology.get();
  compile->program = &program;
  compile->options = options.data();
  compile->options_size = options.size();
  plugin_.call(Function::kCompile, compile, "compiling");
  executable_ = compile->executable;
}

TopologyProgram::~TopologyProgram() {
  Call<pjrt::ExecutableDestroy> destroy;
  destroy->executable = executable_;
  plugin_.release(Function::kExecutableDestroy, destroy);
}

CompiledProgram::Memory TopologyProgram::memory() const {
  return CompiledProgram::memory_of(plugin_, executable_);
}

HloGathers TopologyProgram::gathers() const {
  pjrt::Program program;
  program.head.struct_size = sizeof(program);
  program.format = nullptr;
  program.format_size = 0;
  Call<pjrt::ExecutableOptimizedProgram> ask;
  ask->executable = executable_;
  ask->program = &program;
  plugin_.call(Function::kExecutableOptimizedProgram, ask, "asking for the program");
  std::string code(program.code_size, '\0');
  program.code = code.data();
  plugin_.call(Function::kExecutableOptimizedProgram, ask, "asking for the program");
  return count_gathers(code,
                       std::string_view(program.format, program.format_size) == "hlo_with_config");
}

std::string TopologyProgram::serialized() const { return xla::serialized(plugin_, executable_); }

}  // namespace tessera::xla
