#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/cuda/emulated_cuda.h"
#include "tests/cuda/graph_run.h"

// Graphs run by the CUDA backend on the emulated GPU that checks accesses.
namespace tessera::cuda {

// A backend on an emulated GPU of its own, whose findings are failures of the test. One at a time.
class EmulatedBackend {
 public:
  explicit EmulatedBackend(uint64_t seed, const std::string& variant = "checked")
      : emulated_(chosen(variant), seed) {
    backend_ =
        std::make_unique<CudaBackend>(CudaBackend::Options{.graphs = false, .cublaslt = false});
  }
  CudaBackend& backend() { return *backend_; }
  EmulatedCuda& emulated() { return emulated_; }

  GraphResults run(const Graph& g, const ref::Feeds& feeds) {
    return run_graph(*backend_, g, feeds);
  }

 private:
  // The program looks for the driver once a process.
  static const std::string& chosen(const std::string& variant) {
    setenv(kLibrariesVariable, (std::string(TESSERA_EMULATED_GPU) + "/" + variant).c_str(), 1);
    return variant;
  }

  EmulatedCuda emulated_;
  std::unique_ptr<CudaBackend> backend_;
};

}  // namespace tessera::cuda
