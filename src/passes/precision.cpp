#include "passes/precision.h"

#include "ir/rewriter.h"
#include "ops/primitive/elementwise.h"

namespace tessera {

Graph precision(const Graph& graph, DType compute) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  for (const Node& node : graph.nodes()) {
    const GraphInput* input =
        node.op->tier() == Tier::kInput ? graph.input_of(node.outputs[0]) : nullptr;
    if (!input || input->kind != InputKind::kParameter) {
      rewriter.copy(node);
      continue;
    }
    TensorType type = graph.type(input->value);
    type.dtype = compute;
    rewriter.enter(node);
    rewriter.map(input->value, result.input(input->name, InputKind::kParameter, type));
  }
  // Results, and new content of state, have the dtype that the model gave them.
  auto keep_dtype = [&](Value v) {
    const Node& maker = graph.nodes()[static_cast<size_t>(graph.producer(v))];
    result.set_scope(maker.scope, maker.layer);
    rewriter.map(v, convert(result, rewriter(v), graph.type(v).dtype));
  };
  for (const GraphOutput& output : graph.outputs()) keep_dtype(output.value);
  for (const StateUpdate& update : graph.updates()) keep_dtype(update.value);
  rewriter.finish();
  return result;
}

}  // namespace tessera
