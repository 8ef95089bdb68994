#include "passes/precision.h"

#include "ir/rewriter.h"
#include "ops/primitive/elementwise.h"

namespace tessera {

Graph precision(const Graph& graph, DType compute, Masters masters) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  for (const Node& node : graph.nodes()) {
    const GraphInput* parameter =
        node.op->tier() == Tier::kInput ? graph.input_of(node.outputs[0]) : nullptr;
    if (parameter && parameter->kind != InputKind::kParameter) parameter = nullptr;
    if (!parameter || masters == Masters::kF32) rewriter.copy(node);
    if (!parameter) continue;
    TensorType rounded = graph.type(parameter->value);
    rounded.dtype = compute;
    rewriter.enter(node);
    rewriter.map(parameter->value,
                 masters == Masters::kF32
                     ? convert(result, rewriter(parameter->value), compute)
                     : result.input(parameter->name, InputKind::kParameter, rounded));
  }
  // The caller reads outputs in the dtype that the model gave them.
  for (const GraphOutput& output : graph.outputs()) {
    result.set_scope(graph.nodes()[static_cast<size_t>(graph.producer(output.value))].scope);
    rewriter.map(output.value,
                 convert(result, rewriter(output.value), graph.type(output.value).dtype));
  }
  rewriter.finish();
  return result;
}

}  // namespace tessera
