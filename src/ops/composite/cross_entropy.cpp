#include "ops/composite/cross_entropy.h"

#include "ops/composite/linear.h"
#include "ops/composite/vocabulary_parallel.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

void check_operands(const Op& op, const TensorType& x, const TensorType& w,
                    const TensorType& targets) {
  require(x.shape.size() == 2 && is_float(x.dtype), op, "C1",
          cat("x must be a float [N, D], is ", to_string(x)));
  require(w.shape.size() == 2 && w.shape[1] == x.shape[1] && w.dtype == x.dtype, op, "C2",
          cat("w must be [V, D] of x's dtype: D = ", x.shape[1], ", x is ", to_string(x), ", w is ",
              to_string(w)));
  require(targets.shape == Shape{x.shape[0]} && targets.dtype == DType::kI32, op, "C3",
          cat("targets must be i32 [N]: N = ", x.shape[0], ", targets are ", to_string(targets)));
}

struct Rows {
  Value valid;   // bool [N]
  Value onehot;  // bool [N, V]
  Value logits;  // [N, V] in wide dtype
  Value lse;     // [N]
  Value loss;    // scalar
};

Rows row_losses(Graph& g, Value x, Value w, Value targets) {
  Rows r;
  r.logits = dot(g, x, w, 0, 1, 1, wide(g.type(x).dtype));
  const Shape shape = g.shape(r.logits);
  r.valid = compare(g, Comparison::kNe, targets, constant_like(g, targets, kIgnoreIndex));
  r.onehot = compare(g, Comparison::kEq, broadcast_trailing(g, targets, shape),
                     iota(g, {shape, DType::kI32}, 1));
  Value m = reduce_max(g, r.logits, {1});
  Value e = unary(g, UnaryKind::kExp, sub(g, r.logits, broadcast_trailing(g, m, shape)));
  r.lse = tessera::add(g, m, unary(g, UnaryKind::kLog, reduce_sum(g, e, {1})));
  Value picked = reduce_sum(g, select(g, r.onehot, r.logits, constant_like(g, r.logits, 0)), {1});
  r.loss =
      reduce_sum(g, select(g, r.valid, sub(g, r.lse, picked), constant_like(g, r.lse, 0)), {0});
  return r;
}

}  // namespace

std::vector<TensorType> LinearCrossEntropy::infer(const InferContext& context) const {
  check_operands(*this, context.inputs[0], context.inputs[1], context.inputs[2]);
  return {{{}, wide(context.inputs[0].dtype)}};
}

void LinearCrossEntropy::split(PlacementContext& context) const {
  Placement w = context.placement(1);
  if (!w.split()) return Op::split(context);
  Value loss = vocabulary_parallel_cross_entropy(context.graph(), context.entered(0),
                                                 context.operand(1), context.replicated(2),
                                                 context.whole_type(1).shape[0], w.axes);
  context.put(0, loss, {});
}

std::vector<Value> LinearCrossEntropy::vjp(const VjpContext& context) const {
  const Node& n = context.node;
  auto outputs = context.graph.add(std::make_shared<LinearCrossEntropyBackward>(),
                                   {n.inputs[0], n.inputs[1], n.inputs[2], context.cotangents[0]});
  return {outputs[0], outputs[1], Value{}};
}

std::vector<Value> LinearCrossEntropy::decompose(Graph& g, std::span<const Value> inputs) const {
  return {row_losses(g, inputs[0], inputs[1], inputs[2]).loss};
}

Cost LinearCrossEntropy::cost(std::span<const TensorType> inputs,
                              std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops =
      2.0 * static_cast<double>(inputs[0].elements()) * static_cast<double>(inputs[1].shape[0]);
  return cost;
}

std::vector<TensorType> LinearCrossEntropyBackward::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &w = context.inputs[1], &dloss = context.inputs[3];
  check_operands(*this, x, w, context.inputs[2]);
  require(dloss.shape.empty() && dloss.dtype == wide(x.dtype), *this, "C4",
          cat("dloss must be a wide scalar, is ", to_string(dloss)));
  return {x, {w.shape, wide(w.dtype)}, {{}, wide(x.dtype)}};
}

std::vector<Value> LinearCrossEntropyBackward::decompose(Graph& g,
                                                         std::span<const Value> inputs) const {
  Value x = inputs[0], w = inputs[1], dloss = inputs[3];
  DType dtype = g.type(x).dtype;
  Rows r = row_losses(g, x, w, inputs[2]);
  const Shape shape = g.shape(r.logits);
  Value p = unary(g, UnaryKind::kExp, sub(g, r.logits, broadcast_trailing(g, r.lse, shape)));
  Value onehot = convert(g, r.onehot, g.type(p).dtype);
  Value scaled = mul(g, sub(g, p, onehot), broadcast(g, dloss, shape, {}));
  Value grad = convert(
      g, select(g, broadcast_trailing(g, r.valid, shape), scaled, constant_like(g, scaled, 0)),
      dtype);
  return {dot(g, grad, w, 0, 1, 0, dtype), dot(g, grad, x, 0, 0, 0, wide(dtype)), r.loss};
}

std::vector<std::pair<int, int>> LinearCrossEntropyBackward::subsumes(const Op& forward) const {
  if (forward.name() != "linear_cross_entropy") return {};
  return {{0, 2}};
}

Cost LinearCrossEntropyBackward::cost(std::span<const TensorType> inputs,
                                      std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops =
      6.0 * static_cast<double>(inputs[0].elements()) * static_cast<double>(inputs[1].shape[0]);
  return cost;
}

std::vector<TensorType> CountTargets::infer(const InferContext& context) const {
  require(context.inputs[0].dtype == DType::kI32, *this, "C1",
          cat("targets must be i32, are ", to_string(context.inputs[0])));
  return {{{}, DType::kI64}};
}

std::vector<Value> CountTargets::decompose(Graph& g, std::span<const Value> inputs) const {
  Value valid = compare(g, Comparison::kNe, inputs[0], constant_like(g, inputs[0], kIgnoreIndex));
  std::vector<int64_t> dims;
  for (size_t d = 0; d < g.shape(inputs[0]).size(); ++d) dims.push_back(static_cast<int64_t>(d));
  Value ones = convert(g, valid, DType::kI64);
  return {dims.empty() ? ones : reduce_sum(g, ones, dims)};
}

Value linear_cross_entropy(Graph& graph, Value x, Value w, Value targets) {
  return graph.add_one(std::make_shared<LinearCrossEntropy>(), {x, w, targets});
}
Value count_targets(Graph& graph, Value targets) {
  return graph.add_one(std::make_shared<CountTargets>(), {targets});
}

}  // namespace tessera
