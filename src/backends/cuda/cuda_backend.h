#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "backends/cuda/cublaslt_products.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_executable.h"
#include "backends/cuda/cudnn_attention.h"
#include "backends/cuda/nccl_communicator.h"
#include "backends/cuda/sum_order.h"
#include "runtime/backend.h"
#include "runtime/control.h"

namespace tessera::cuda {

// One of NVIDIA's GPUs as a device: planned programs on streams, recorded as CUDA graphs, with
// products by cublasLt and attention by cuDNN where those are found, kernels of this program for
// all else, and exchanges through NCCL.
class CudaBackend final : public Backend {
 public:
  struct Options {
    int gpu = 0;         // as the driver counts those that it shows to this process
    bool graphs = true;  // whether runs are recorded as CUDA graphs
    bool cublaslt = true;
    bool cudnn = true;
    bool cupti = true;            // for profiles
    ProductChoices choices = {};  // of algorithms of cublasLt
    // To the other ranks of the job; without one, programs of several ranks can be compiled, not
    // run. Must live longer. All ranks make their backends at the same time.
    Control* control = nullptr;
    std::chrono::milliseconds deadline{300'000};
    std::string host;  // what tells this machine from those of other ranks; empty: its name
    SumOrder sums = SumOrder::kLibrary;  // between ranks
    // Whether sums in rank order read the memory of other ranks where they can: it changes no bit.
    bool peers = true;
  };
  // DeviceError that says what to do where the driver, a GPU, kernels for it or, with several
  // ranks, NCCL are missing.
  explicit CudaBackend(const Options& options);
  ~CudaBackend() override;

  std::unique_ptr<Executable> compile(const Graph& graph) override;
  std::unique_ptr<CudaExecutable> compile_cuda(const Graph& graph, const PlanOptions& options = {
                                                                       .copies_beside = true});
  std::unique_ptr<State> make_state() override { return std::make_unique<CudaState>(device_); }
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override {
    return std::make_unique<CudaArenas>(device_, memory);
  }
  bool runs_ahead() const override { return true; }

  // "GPU 0 (NVIDIA H100 80GB HBM3), driver for CUDA 13.0, cublasLt 13.1.0, cuDNN 9.19.0, NCCL
  // 2.28.9".
  std::string description() const;
  CudaDevice& device() { return device_; }
  const KernelTable& kernels() const { return table_; }
  // Null with one rank.
  NcclCommunicator* communicator() { return communicator_ ? &*communicator_ : nullptr; }
  CublasLtProducts* products() { return products_ ? &*products_ : nullptr; }

 private:
  Options options_;
  CudaDevice device_;
  std::optional<CublasLtProducts> products_;
  std::string without_cublaslt_;  // why, where it is wanted and not found
  std::optional<CudnnAttention> attention_;
  std::optional<NcclCommunicator> communicator_;
  KernelTable table_;
};

}  // namespace tessera::cuda
