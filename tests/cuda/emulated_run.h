#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

  // The one node of a graph by a kernel of the table; an output may take the bytes of an input.
  GraphResults run_launch(const Graph& g, const ref::Feeds& feeds, const KernelTable& table,
                          std::optional<InPlacePair> shared = {}) {
    const Node& node = g.nodes().back();
    std::vector<TensorType> inputs, outputs;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (Value v : node.inputs) inputs.push_back(g.type(v));
    for (Value v : node.outputs) outputs.push_back(g.type(v));
    const CUstream stream = backend_->device().stream();
    for (const GraphInput& input : g.inputs()) {
      std::string bytes;
      for (double v : feeds.at(input.name)[0]) append_element(bytes, g.type(input.value).dtype, v);
      from.push_back(emulated_.upload(std::vector<char>(bytes.begin(), bytes.end()), stream));
    }
    for (const TensorType& type : outputs)
      to.push_back(emulated_.allocate<char>(static_cast<size_t>(type.bytes()) + 1));
    if (shared)
      to[static_cast<size_t>(shared->output)] =
          const_cast<void*>(from[static_cast<size_t>(shared->input)]);
    Prepared prepared = table.prepare({*node.op, inputs, outputs, g.mesh()});
    const Launch& launch = std::get<Launch>(prepared);
    launch.run(
        {from, to, emulated_.allocate<char>(static_cast<size_t>(launch.workspace_bytes) + 1)});
    GraphResults result;
    for (size_t k = 0; k < to.size(); ++k) {
      const auto bytes = emulated_.download(static_cast<const char*>(to[k]),
                                            static_cast<size_t>(outputs[k].bytes()), stream);
      emulated_.stream_synchronize(stream);
      result.outputs.push_back(decoded(outputs[k].dtype, std::string(bytes.begin(), bytes.end())));
    }
    return result;
  }

 private:
  // The program looks for the driver once a process.
  static const std::string& chosen(const std::string& variant) {
    setenv(kLibrariesVariable, (std::string(TESSERA_EMULATED_GPU) + "/" + variant).c_str(), 1);
    return variant;
  }

  // Values of f32 and bf16 only.
  static GraphResult decoded(DType dtype, const std::string& bytes) {
    GraphResult output{bytes, {}};
    const bool half = dtype == DType::kBF16;
    const size_t size = half ? sizeof(BF16) : sizeof(float);
    if (!half && dtype != DType::kF32) return output;
    for (size_t i = 0; i < bytes.size(); i += size) {
      BF16 narrow;
      float wide = 0;
      std::memcpy(half ? static_cast<void*>(&narrow) : &wide, &bytes[i], size);
      output.values.push_back(half ? static_cast<float>(narrow) : wide);
    }
    return output;
  }

  EmulatedCuda emulated_;
  std::unique_ptr<CudaBackend> backend_;
};

}  // namespace tessera::cuda
