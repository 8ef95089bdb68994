#include "backends/xla/ahead_of_time.h"

#include <cstring>
#include <ctime>

#include "backends/xla/child_process.h"
#include "backends/xla/cuda_files.h"
#include "base/clock.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

// What the child hands over; behind it the interface's version and the executable.
struct Numbers {
  CompiledProgram::Memory memory;
  HloGathers gathers;
  double seconds = 0, processor_seconds = 0;
  size_t interface_size = 0;
};

// Of all threads of this process.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

AheadOfTime compile_ahead(const std::filesystem::path& plugin_path, const TargetMachines& machines,
                          const std::string& name, const std::string& text,
                          const AheadOfTimeOptions& options) {
  const std::string_view config = target_config(machines.gpu);
  const CudaFiles files = find_cuda_files(cuda_roots(plugin_path));
  const std::string doing = cat("compiling ", name, " for ", machines.gpu);
  const std::string handed_over = in_child_process(doing, options.timeout, [&] {
    use_cuda_files(files);
    const Plugin plugin(plugin_path.string());
    const Topology topology(plugin, config, machines.hosts, machines.gpus_per_host);
    const double start = monotonic_seconds(), processor_start = processor_seconds();
    const TopologyProgram program(topology, text, machines.gpus(), options.memory);
    Numbers numbers;
    numbers.seconds = monotonic_seconds() - start;
    numbers.processor_seconds = processor_seconds() - processor_start;
    numbers.memory = program.memory();
    numbers.gathers = program.gathers();
    const std::string version = plugin.version();
    numbers.interface_size = version.size();
    std::string bytes(reinterpret_cast<const char*>(&numbers), sizeof(numbers));
    bytes += version;
    if (options.keep_executable) bytes += program.serialized();
    return bytes;
  });
  Numbers numbers;
  TESSERA_CHECK(handed_over.size() >= sizeof(numbers));
  std::memcpy(&numbers, handed_over.data(), sizeof(numbers));
  AheadOfTime result;
  result.memory = numbers.memory;
  result.gathers = numbers.gathers;
  result.seconds = numbers.seconds;
  result.processor_seconds = numbers.processor_seconds;
  result.interface = handed_over.substr(sizeof(numbers), numbers.interface_size);
  result.executable = handed_over.substr(sizeof(numbers) + numbers.interface_size);
  return result;
}

}  // namespace tessera::xla
