#pragma once
#include <memory>
#include <string_view>

#include "backends/cuda/device.h"
#include "backends/cuda/sum_order.h"
#include "runtime/backend.h"
#include "runtime/kernel_table.h"

namespace tessera::cuda {

// A GPU that is only described, to plan with on machines without one. Kernels are found, and
// nothing is launched.
class DescribedDevice final : public Device {
 public:
  Kernel kernel(std::string_view name) override { return {nullptr, name}; }
  void fill(void* to, int64_t bytes) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  CUstream stream() const override { return nullptr; }
  int multiprocessors() const override { return 1; }

 private:
  void launch_kernel(const Kernel& kernel, Shape3 grid, Shape3 block, int shared_bytes,
                     std::span<void*> arguments) override;
};

// Compiles programs as CudaBackend does, with the same kernels and workspaces, for a GPU that need
// not be there: what it makes has a plan and cannot run.
class DescribedBackend final : public Backend {
 public:
  // kCublasLt: products by cublasLt, which says on a device only what workspace it takes: here each
  // takes the most that it may have, so that values may lie at other places than on a device.
  // kOwn: by kernels of this program; plans are to the byte those of a device without cublasLt.
  enum class Products { kCublasLt, kOwn };
  explicit DescribedBackend(Products products, SumOrder sums = SumOrder::kLibrary);

  std::unique_ptr<Executable> compile(const Graph& graph) override;
  std::unique_ptr<State> make_state() override;
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;
  bool runs_ahead() const override { return true; }

 private:
  DescribedDevice device_;
  KernelTable table_;
};

}  // namespace tessera::cuda
