#include "ir/marks.h"

namespace tessera {

std::vector<TensorType> VaryOp::infer(const InferContext& context) const {
  TensorType type = context.inputs[0];
  require(!type.varying.overlaps(axes_), *this, "C1", "the operand must be replicated over ",
          context.mesh.to_string(axes_), ": it is ", to_string(type, &context.mesh));
  type.varying = type.varying | axes_;
  return {type};
}

std::vector<Value> VaryOp::vjp(const VjpContext& context) const {
  return {context.graph.add_one(std::make_shared<AllReduceOp>(axes_, Reduction::kSum),
                                {context.cotangents[0]})};
}

std::vector<TensorType> AsReplicatedOp::infer(const InferContext& context) const {
  TensorType type = context.inputs[0];
  require(type.varying.contains(axes_), *this, "C1", "the operand must vary over ",
          context.mesh.to_string(axes_), ": it is ", to_string(type, &context.mesh));
  type.varying = type.varying - axes_;
  return {type};
}

std::vector<TensorType> AllReduceOp::infer(const InferContext& context) const {
  TensorType type = context.inputs[0];
  require(type.varying.contains(axes_), *this, "C1", "the operand must vary over ",
          context.mesh.to_string(axes_),
          " (reducing a replicated value would count it once a rank): it is ",
          to_string(type, &context.mesh));
  type.varying = type.varying - axes_;
  return {type};
}

std::vector<Value> AllReduceOp::vjp(const VjpContext& context) const {
  return {vary(context.graph, context.cotangents[0], axes_)};
}

Value vary(Graph& graph, Value value, AxisSet axes) {
  AxisSet missing = axes - graph.type(value).varying;
  if (missing.empty()) return value;
  return graph.add_one(std::make_shared<VaryOp>(missing), {value});
}

Value sum_over_marks(Graph& graph, Value value) {
  AxisSet axes = graph.type(value).varying;
  if (axes.empty()) return value;
  return graph.add_one(std::make_shared<AllReduceOp>(axes, Reduction::kSum), {value});
}

}  // namespace tessera
