#include "backends/cuda/described_backend.h"

#include "backends/cuda/cuda_kernels.h"
#include "base/error.h"
#include "base/text.h"
#include "runtime/host_executable.h"

namespace tessera::cuda {
namespace {

[[noreturn]] void refuse() { throw InternalError("this GPU is only described: it cannot run"); }

// Addresses of operands that are not there: as aligned as those of a plan.
std::byte* no_address() { return reinterpret_cast<std::byte*>(kPlacedAlignment); }

}  // namespace

void DescribedDevice::fill(void*, int64_t) {
  if (!recorded_) refuse();
}
void DescribedDevice::copy(void*, const void*, int64_t) {
  if (!recorded_) refuse();
}
void DescribedDevice::launch_kernel(const Kernel& kernel, Shape3 grid, Shape3 block,
                                    int shared_bytes, std::span<void*>) {
  if (!recorded_) refuse();
  recorded_->push_back(
      {kernel.name, int64_t{grid.x} * static_cast<int64_t>(grid.y) * static_cast<int64_t>(grid.z),
       static_cast<int>(block.x * block.y * block.z), shared_bytes});
}

DescribedBackend::DescribedBackend(Options options) : device_(options.capability) {
  MakeProduct make;
  if (options.products == Products::kCublasLt) {
    make =
        [this, gpu = options.gpu, version = options.choices.newest_version(options.gpu).value_or(0),
         choices = std::move(options.choices)](const ProductProblem& p) -> std::optional<Product> {
      if (p.m == 0 || p.n == 0 || p.k == 0) return std::nullopt;
      const ProductChoice* choice = choices.find(gpu, version, p);
      return Product{choice ? "cublasLt, measured" : "cublasLt",
                     choice ? padded_workspace(choice->workspace_bytes) : kLibraryWorkspaceBytes,
                     [this](const ProductArguments&) {
                       if (!device_.records()) refuse();
                     }};
    };
  }
  Prepare attention;
  if (options.attentions == Attentions::kCudnn) {
    try {
      attention_.emplace(device_);
      attention_text_ = cat("cuDNN ", Cudnn::get().version(), ", its workspaces exact");
      attention = [this](const PrepareContext& context) { return attention_->prepare(context); };
    } catch (const DeviceError& error) {
      attention_text_ = "own kernels, without cuDNN";
      attention = [reason = std::string(error.what())](const PrepareContext&) { return reason; };
    }
  }
  register_kernels(table_, device_, make, nullptr, attention, options.sums);
}

std::unique_ptr<Executable> DescribedBackend::compile(const Graph& graph) {
  return tessera::compile(graph, table_, {.copies_beside = true});
}

std::unique_ptr<State> DescribedBackend::make_state() { refuse(); }
std::unique_ptr<Arenas> DescribedBackend::make_arenas(const ProgramMemory&) { refuse(); }

std::vector<KernelLaunch> DescribedBackend::launches(const Executable& executable, size_t index) {
  const auto* planned = dynamic_cast<const HostExecutable*>(&executable);
  TESSERA_CHECK(planned, "an executable of another backend");
  const Node& node = planned->graph().nodes()[index];
  std::vector<KernelLaunch> launched;
  const Launch& launch = planned->launch(index);
  if (!launch.run || node.op->communication()) return launched;
  const std::vector<const void*> inputs(node.inputs.size(), no_address());
  const std::vector<void*> outputs(node.outputs.size(), no_address());
  device_.record(&launched);
  try {
    launch.run({inputs, outputs, no_address()});
  } catch (const InternalError&) {  // a library's part, which is only described too
  }
  device_.record(nullptr);
  return launched;
}

}  // namespace tessera::cuda
