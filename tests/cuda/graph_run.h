#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/ref/interpreter.h"
#include "base/dtype_of.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/text.h"

// Graphs run once by the CUDA backend, on whatever GPU it has.
namespace tessera::cuda {

// The bytes of a result, and its elements as doubles.
struct GraphResult {
  std::string bytes;
  std::vector<double> values;
};
struct GraphResults {
  std::vector<GraphResult> outputs;
  bool decomposed = false;  // a node had no kernel
};

template <class T>
void append_as(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_element(std::string& bytes, DType dtype, double v) {
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
GraphResult read_as(const Pending& pending, const std::string& name, int64_t n) {
  const auto values = std::make_unique<T[]>(static_cast<size_t>(n));
  pending.read(name, std::span<T>(values.get(), static_cast<size_t>(n)));
  GraphResult output;
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
inline GraphResult read_output(const Pending& pending, const std::string& name,
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
  throw InternalError(cat(name, " is f16, which is no result here"));
}

// Results of f16 cannot be read.
inline GraphResults run_graph(CudaBackend& backend, const Graph& g, const ref::Feeds& feeds) {
  auto executable = backend.compile(g);
  auto state = backend.make_state();
  auto arenas = backend.make_arenas(executable->memory());
  executable->bind(*state, *arenas);
  std::map<std::string, std::string> content;
  Arguments arguments;
  for (const GraphInput& input : g.inputs()) {
    std::string& bytes = content[input.name];
    for (double v : feeds.at(input.name)[0]) append_element(bytes, g.type(input.value).dtype, v);
    arguments[input.name] = bytes.data();
  }
  const Pending pending = executable->start(arguments);
  GraphResults result;
  result.decomposed = executable->graph().nodes().size() != g.nodes().size();
  for (const GraphOutput& output : g.outputs())
    result.outputs.push_back(read_output(pending, output.name, g.type(output.value)));
  return result;
}

// The first result of one op whose operands, x0 and so on, have these types and values.
inline GraphResult run_op(CudaBackend& backend, const OpPtr& op,
                          const std::vector<TensorType>& types,
                          const std::vector<std::vector<double>>& values) {
  Graph g;
  std::vector<Value> inputs;
  ref::Feeds feeds;
  for (size_t i = 0; i < types.size(); ++i) {
    inputs.push_back(g.input(cat("x", i), InputKind::kArgument, types[i]));
    feeds[cat("x", i)] = {values[i]};
  }
  g.output("y", g.add_one(op, inputs));
  return run_graph(backend, g, feeds).outputs.at(0);
}

}  // namespace tessera::cuda
