#include "passes/precision.h"

#include "ir/rewriter.h"
#include "ops/primitive/elementwise.h"

namespace tessera {

Graph precision(const Graph& graph, DType compute) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    if (node.op->tier() != Tier::kInput) continue;
    for (const GraphInput& input : graph.inputs()) {
      if (input.value == node.outputs[0] && input.kind == InputKind::kParameter) {
        rewriter.map(input.value, convert(result, rewriter(input.value), compute));
      }
    }
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
