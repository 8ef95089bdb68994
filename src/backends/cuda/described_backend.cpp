#include "backends/cuda/described_backend.h"

#include "backends/cuda/cuda_kernels.h"
#include "base/error.h"
#include "base/text.h"
#include "runtime/host_executable.h"

namespace tessera::cuda {
namespace {

[[noreturn]] void refuse() { throw InternalError("this GPU is only described: it cannot run"); }

std::optional<Product> described_product(const ProductProblem& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return std::nullopt;
  return Product{"cublasLt", kLibraryWorkspaceBytes, [](const ProductArguments&) { refuse(); }};
}

}  // namespace

void DescribedDevice::fill(void*, int64_t) { refuse(); }
void DescribedDevice::copy(void*, const void*, int64_t) { refuse(); }
void DescribedDevice::launch_kernel(const Kernel&, Shape3, Shape3, int, std::span<void*>) {
  refuse();
}

DescribedBackend::DescribedBackend(Products products, Attentions attentions, SumOrder sums) {
  MakeProduct make;
  if (products == Products::kCublasLt) make = described_product;
  Prepare attention;
  if (attentions == Attentions::kCudnn) {
    try {
      attention_.emplace(device_);
      attention_text_ = cat("cuDNN ", Cudnn::get().version(), ", its workspaces exact");
      attention = [this](const PrepareContext& context) { return attention_->prepare(context); };
    } catch (const DeviceError& error) {
      attention_text_ = "own kernels, without cuDNN";
      attention = [reason = std::string(error.what())](const PrepareContext&) { return reason; };
    }
  }
  register_kernels(table_, device_, make, nullptr, attention, sums);
}

std::unique_ptr<Executable> DescribedBackend::compile(const Graph& graph) {
  return tessera::compile(graph, table_, {.copies_beside = true});
}

std::unique_ptr<State> DescribedBackend::make_state() { refuse(); }
std::unique_ptr<Arenas> DescribedBackend::make_arenas(const ProgramMemory&) { refuse(); }

}  // namespace tessera::cuda
