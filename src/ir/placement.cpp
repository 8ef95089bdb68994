#include "ir/placement.h"

namespace tessera {

void Op::split(PlacementContext& context) const {
  std::vector<Value> operands;
  for (size_t i = 0; i < context.node().inputs.size(); ++i)
    operands.push_back(context.replicated(i));
  context.apply(std::move(operands), {});
}

void PlacementContext::apply(std::vector<Value> operands, Placement placement) {
  std::vector<Value> outputs = graph().add(node().op, std::move(operands));
  for (size_t k = 0; k < outputs.size(); ++k) put(k, outputs[k], placement);
}

void split_elementwise(PlacementContext& context) {
  std::vector<Value> operands;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) operands.push_back(context.reduced(i));
  Placement placement;
  for (size_t i = 0; i < operands.size() && placement.whole(); ++i)
    placement = context.placement(i);
  for (size_t i = 0; i < operands.size(); ++i)
    if (context.placement(i) != placement) operands[i] = context.sliced(i, placement);
  context.apply(std::move(operands), placement);
}

void split_rowwise(PlacementContext& context, int64_t dims) {
  std::vector<Value> operands{context.reduced(0)};
  Placement placement = context.placement(0);
  auto rank = static_cast<int64_t>(context.whole_type(0).shape.size());
  if (placement.split() && placement.dim >= rank - dims) {
    operands[0] = context.replicated(0);
    placement = {};
  }
  for (size_t i = 1; i < context.node().inputs.size(); ++i)
    operands.push_back(context.replicated(i));
  context.apply(std::move(operands), placement);
}

}  // namespace tessera
