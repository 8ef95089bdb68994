#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "autodiff/backward.h"
#include "base/random.h"
#include "ir/marks.h"
#include "ir/verifier.h"
#include "passes/tensor_parallel.h"

namespace tessera {

// A model as one rank of a tensor-parallel group has it, with gradients of all its parameters.
struct Split {
  ModelGraph model;
  Mesh mesh;
  TensorParallelAxes axes;
  std::vector<ParameterPart> parts;
  Graph graph;

  // `kv_ranks` of the group have key/value heads of their own.
  Split(ModelGraph whole, int ranks, bool sequence_parallel, int kv_ranks)
      : model(std::move(whole)), mesh(axes_of(ranks, kv_ranks)) {
    for (const Mesh::Axis& axis : mesh.axes()) axes.all = axes.all | mesh.axis(axis.name);
    if (kv_ranks > 1) axes.kv_heads = mesh.axis("tp");
    parts = parameter_parts(model.parameters, mesh, axes);
    graph = tensor_parallel(model.graph, model.parameters, parts, mesh, axes, sequence_parallel);
    std::vector<Value> parameters;
    for (const Parameter& p : model.parameters) parameters.push_back(graph.input_value(p.name));
    Value loss = sum_over_marks(graph, graph.outputs()[0].value);
    std::vector<Value> gradients = backward(graph, loss, parameters);
    for (size_t i = 0; i < parameters.size(); ++i)
      graph.output(cat("d ", model.parameters[i].name), gradients[i]);
    verify(graph, "tensor_parallel");
  }
  static Mesh axes_of(int ranks, int kv_ranks) {
    std::vector<Mesh::Axis> axes;
    if (kv_ranks > 1) axes.push_back({"tp", kv_ranks});
    if (ranks > kv_ranks) axes.push_back({"tp_shared", ranks / kv_ranks});
    return Mesh(axes);
  }

  // Nodes of an op in a layer. Elements: of the first operand; 0: any.
  int count(std::string_view op, const std::string& scope, Phase phase,
            int64_t elements = 0) const {
    return static_cast<int>(std::ranges::count_if(graph.nodes(), [&](const Node& n) {
      return n.op->name() == op && n.scope.starts_with(scope) && n.phase == phase &&
             (elements == 0 || graph.type(n.inputs[0]).elements() == elements);
    }));
  }
  const ParameterPart& part(std::string_view name) const {
    for (size_t i = 0; i < parts.size(); ++i)
      if (model.parameters[i].name == name) return parts[i];
    throw InternalError(std::string(name));
  }
};

inline std::vector<double> numbers(const std::string& name, int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(random_normal(3, stream_of(name), static_cast<uint64_t>(i)));
  return values;
}

// Rows [rank n, (rank + 1) n) of a vector or matrix along the dim of a part, for every rank.
inline std::vector<std::vector<double>> parts_of(const std::vector<double>& whole,
                                                 const Shape& shape, const ParameterPart& part,
                                                 int ranks) {
  if (part.dim < 0) return {whole};
  std::vector<std::vector<double>> parts(static_cast<size_t>(ranks));
  int64_t columns = shape.back();
  for (size_t i = 0; i < whole.size(); ++i) {
    auto at = static_cast<int64_t>(i);
    int64_t position = part.dim > 0 || shape.size() == 1 ? at % columns : at / columns;
    parts[static_cast<size_t>(position / part.shape[static_cast<size_t>(part.dim)])].push_back(
        whole[i]);
  }
  return parts;
}

}  // namespace tessera
