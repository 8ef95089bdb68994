#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/ref/interpreter.h"
#include "base/dtype_of.h"
#include "base/float16.h"
#include "base/text.h"
#include "tests/cuda/emulated_cuda.h"

// Graphs run by the CUDA backend on the emulated GPU that checks accesses.
namespace tessera::cuda {

// The bytes of a result, and its elements as doubles.
struct EmulatedOutput {
  std::string bytes;
  std::vector<double> values;
};
struct EmulatedOutputs {
  std::vector<EmulatedOutput> outputs;
  bool decomposed = false;  // a node had no kernel
};

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

  // Results of f16 cannot be read.
  EmulatedOutputs run(const Graph& g, const ref::Feeds& feeds) {
    auto executable = backend_->compile(g);
    auto state = backend_->make_state();
    auto arenas = backend_->make_arenas(executable->memory());
    executable->bind(*state, *arenas);
    std::map<std::string, std::string> content;
    Arguments arguments;
    for (const GraphInput& input : g.inputs()) {
      std::string& bytes = content[input.name];
      for (double v : feeds.at(input.name)[0]) append(bytes, g.type(input.value).dtype, v);
      arguments[input.name] = bytes.data();
    }
    const Pending pending = executable->start(arguments);
    EmulatedOutputs result;
    result.decomposed = executable->graph().nodes().size() != g.nodes().size();
    for (const GraphOutput& output : g.outputs())
      result.outputs.push_back(read(pending, output.name, g.type(output.value)));
    return result;
  }

  // The one node of a graph by a kernel of the table; an output may take the bytes of an input.
  EmulatedOutputs run_launch(const Graph& g, const ref::Feeds& feeds, const KernelTable& table,
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
      for (double v : feeds.at(input.name)[0]) append(bytes, g.type(input.value).dtype, v);
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
    EmulatedOutputs result;
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

  template <class T>
  static void append_as(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void append(std::string& bytes, DType dtype, double v) {
    switch (dtype) {
      case DType::kF64: return append_as(bytes, v);
      case DType::kF32: return append_as(bytes, static_cast<float>(v));
      case DType::kBF16: return append_as(bytes, BF16(static_cast<float>(v)));
      case DType::kF16: return append_as(bytes, F16(static_cast<float>(v)));
      case DType::kI64: return append_as(bytes, static_cast<int64_t>(v));
      case DType::kI32: return append_as(bytes, static_cast<int32_t>(v));
      case DType::kBool: return append_as(bytes, static_cast<uint8_t>(v != 0));
    }
  }

  template <class T>
  static EmulatedOutput read_as(const Pending& pending, const std::string& name, int64_t n) {
    const auto values = std::make_unique<T[]>(static_cast<size_t>(n));
    pending.read(name, std::span<T>(values.get(), static_cast<size_t>(n)));
    EmulatedOutput output;
    output.bytes.assign(reinterpret_cast<const char*>(values.get()),
                        static_cast<size_t>(n) * sizeof(T));
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, BF16>)
        output.values.push_back(static_cast<float>(values[static_cast<size_t>(i)]));
      else
        output.values.push_back(static_cast<double>(values[static_cast<size_t>(i)]));
    }
    return output;
  }
  // Values of f32 and bf16 only.
  static EmulatedOutput decoded(DType dtype, const std::string& bytes) {
    EmulatedOutput output{bytes, {}};
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
  static EmulatedOutput read(const Pending& pending, const std::string& name,
                             const TensorType& type) {
    switch (type.dtype) {
      case DType::kF64: return read_as<double>(pending, name, type.elements());
      case DType::kF32: return read_as<float>(pending, name, type.elements());
      case DType::kBF16: return read_as<BF16>(pending, name, type.elements());
      case DType::kI64: return read_as<int64_t>(pending, name, type.elements());
      case DType::kI32: return read_as<int32_t>(pending, name, type.elements());
      case DType::kBool: return read_as<bool>(pending, name, type.elements());
      case DType::kF16: break;
    }
    ADD_FAILURE() << name << " is f16";
    return {};
  }

  EmulatedCuda emulated_;
  std::unique_ptr<CudaBackend> backend_;
};

}  // namespace tessera::cuda
