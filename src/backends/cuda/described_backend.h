#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/cudnn_attention.h"
#include "backends/cuda/device.h"
#include "backends/cuda/product_choices.h"
#include "backends/cuda/sum_order.h"
#include "runtime/backend.h"
#include "runtime/kernel_table.h"

namespace tessera::cuda {

// A launch of one of this program's kernels.
struct KernelLaunch {
  std::string_view kernel;
  int64_t blocks = 0;
  int threads = 0, shared_bytes = 0;  // of a block; shared memory that the launch gives
};

// A GPU that is only described, to plan with on machines without one. Kernels are found, and
// launches are written down where somebody asks for them.
class DescribedDevice final : public Device {
 public:
  // 80 or 90: data-centre GPUs of that compute capability.
  explicit DescribedDevice(int capability = 90) : capability_(capability) {}
  Kernel kernel(std::string_view name) override { return {nullptr, name}; }
  void fill(void* to, int64_t bytes) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  CUstream stream() const override { return nullptr; }
  // While `to` is not null, launches are appended to it; else they are refused.
  void record(std::vector<KernelLaunch>* to) { recorded_ = to; }
  bool records() const { return recorded_; }
  int multiprocessors() const override { return 1; }
  int64_t shared_bytes() const override { return capability_ >= 90 ? 227 << 10 : 163 << 10; }
  std::shared_ptr<IdFault> id_fault(std::string) override { return std::make_shared<IdFault>(); }

 private:
  void launch_kernel(const Kernel& kernel, Shape3 grid, Shape3 block, int shared_bytes,
                     std::span<void*> arguments) override;

  int capability_;
  std::vector<KernelLaunch>* recorded_ = nullptr;
};

// Compiles programs as CudaBackend does, with the same kernels and workspaces, for a GPU that need
// not be there: what it makes has a plan and cannot run.
class DescribedBackend final : public Backend {
 public:
  // kCublasLt: products by cublasLt, which says on a device only what workspace it takes: here each
  // takes the most that it may have, so that values may lie at other places than on a device.
  // kOwn: by kernels of this program; plans are to the byte those of a device without cublasLt.
  // But for what was measured on `gpu` (choice_device(), "": none) with the latest version of
  // cublasLt of which `choices` has lines: of those products the workspace is known.
  enum class Products { kCublasLt, kOwn };
  // kCudnn: attention by cuDNN where this machine has it; it says what workspaces it takes on an
  // H100 or H200, and plans are to the byte what those take. kOwn: by kernels of this program.
  enum class Attentions { kCudnn, kOwn };
  struct Options {
    Products products = Products::kOwn;
    Attentions attentions = Attentions::kOwn;
    SumOrder sums = SumOrder::kLibrary;
    int capability = 90;
    std::string gpu;
    ProductChoices choices = {};
  };
  explicit DescribedBackend(Options options);

  // "cuDNN 9.19.0, its workspaces exact", "own kernels, without cuDNN": launches say why.
  const std::string& attention() const { return attention_text_; }

  std::unique_ptr<Executable> compile(const Graph& graph) override;
  std::unique_ptr<State> make_state() override;
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;
  bool runs_ahead() const override { return true; }

  // What node `node` of an executable of this backend launches of this program's kernels: nothing
  // of exchanges and of products by cublasLt.
  std::vector<KernelLaunch> launches(const Executable& executable, size_t node);

 private:
  DescribedDevice device_;
  std::optional<CudnnAttention> attention_;
  std::string attention_text_ = "own kernels";
  KernelTable table_;
};

}  // namespace tessera::cuda
