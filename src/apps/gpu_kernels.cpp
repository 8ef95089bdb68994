#include "apps/gpu_kernels.h"

#include <map>
#include <utility>

#include "backends/cuda/kernel_facts.h"
#include "base/text.h"
#include "explain/kernel_use.h"

namespace tessera {
namespace {

// The launches of one kernel by one op.
struct GpuKernelUse {
  int64_t launches = 0;  // of a step
  cuda::KernelLaunch largest;
};

std::string kernel_row(const std::string& op, std::string_view kernel, const GpuKernelUse& use,
                       int capability) {
  const std::string head =
      format("  %-30s %-30s %8lld %8lld", op.c_str(), std::string(kernel).c_str(),
             static_cast<long long>(use.launches), static_cast<long long>(use.largest.blocks));
  const auto found = cuda::kernel_facts().find(kernel);
  if (found == cuda::kernel_facts().end()) return head + "  not in the table\n";
  const cuda::CompiledKernel& compiled = found->second.compiled.at(capability);
  const cuda::Occupancy fills =
      cuda::occupancy(capability, compiled, use.largest.threads, use.largest.shared_bytes);
  return head + format(" %9d %7d %7d %4d x %-4d %5.0f %%\n", compiled.registers,
                       compiled.shared_bytes + use.largest.shared_bytes, compiled.spilled_bytes,
                       fills.blocks, use.largest.threads, 100 * fills.share);
}

}  // namespace

std::string gpu_kernels_text(cuda::DescribedBackend& backend, const Session& session,
                             int64_t micro_batches, int capability) {
  std::map<std::pair<std::string, std::string_view>, GpuKernelUse> uses;
  for (const Session::Program& program : session.compiled()) {
    const int64_t runs = runs_in_step(session.programs(), program.name, micro_batches);
    const Graph& graph = program.executable->graph();
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (const cuda::KernelLaunch& launch : backend.launches(*program.executable, i)) {
        GpuKernelUse& use = uses[{std::string(graph.nodes()[i].op->name()), launch.kernel}];
        use.launches += runs;
        if (launch.blocks >= use.largest.blocks) use.largest = launch;
      }
    }
  }
  std::string text = format(
      "\nKernels of this program on the GPU, as nvcc made them for compute capability %d.0; "
      "static, "
      "nothing was run. Blocks of the\nlargest launch; blocks x threads and their share of what a "
      "multiprocessor holds:\n  %-30s %-30s %8s %8s %9s %7s %7s %11s %7s\n",
      capability / 10, "op", "kernel", "launches", "blocks", "registers", "shared", "spilled",
      "at a time", "fills");
  for (const auto& [names, use] : uses)
    text += kernel_row(names.first, names.second, use, capability);
  return text;
}

}  // namespace tessera
