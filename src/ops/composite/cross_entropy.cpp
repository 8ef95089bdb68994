#include "ops/composite/cross_entropy.h"

#include "ops/composite/vocabulary_parallel.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

void check_operands(const Op& op, const TensorType& x, const TensorType& w,
                    const TensorType& targets) {
  require(x.shape.size() == 2 && is_float(x.dtype), op, "C1", "x must be a float [N, D], is ", x);
  require(w.shape.size() == 2 && w.shape[1] == x.shape[1] && w.dtype == x.dtype, op, "C2",
          "w must be [V, D] of x's dtype: D = ", x.shape[1], ", x is ", x, ", w is ", w);
  require(targets.shape == Shape{x.shape[0]} && targets.dtype == DType::kI32, op, "C3",
          "targets must be i32 [N]: N = ", x.shape[0], ", targets are ", targets);
}

struct Rows {
  Value valid;          // bool [N]
  Value onehot;         // bool [N, V]
  Value logits;         // [N, V] in wide dtype
  Value lse;            // [N]
  Value loss, squares;  // scalars
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
  auto sum = [&](Value by_row) {
    return reduce_sum(g, select(g, r.valid, by_row, constant_like(g, by_row, 0)), {0});
  };
  r.loss = sum(sub(g, r.lse, picked));
  r.squares = sum(mul(g, r.lse, r.lse));
  return r;
}

}  // namespace

std::vector<TensorType> LinearCrossEntropy::infer(const InferContext& context) const {
  check_operands(*this, context.inputs[0], context.inputs[1], context.inputs[2]);
  TensorType scalar{{}, wide(context.inputs[0].dtype)};
  return {scalar, scalar};
}

void LinearCrossEntropy::split(PlacementContext& context) const {
  Placement w = context.placement(1);
  if (!w.split_on(0)) return Op::split(context);
  CrossEntropySums sums = vocabulary_parallel_cross_entropy(
      context.graph(), context.entered(0), context.operand(1), context.replicated(2),
      context.whole_type(1).shape[0], w.axes);
  context.put(0, sums.loss, {});
  context.put(1, sums.squares, {});
}

std::vector<Value> LinearCrossEntropy::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  std::vector<Value> operands = context.node.inputs;
  for (Value d : context.cotangents) {
    operands.push_back(d ? d : constant_like(g, context.node.outputs[0], 0));
  }
  HeadGradients wanted{context.needed[0], context.needed[1]};
  auto outputs = g.add(std::make_shared<LinearCrossEntropyBackward>(wanted), operands);
  return {wanted.dx ? outputs[0] : Value{}, wanted.dw ? outputs[wanted.dx] : Value{}, Value{}};
}

std::vector<Value> LinearCrossEntropy::decompose(Graph& g, std::span<const Value> inputs) const {
  Rows r = row_losses(g, inputs[0], inputs[1], inputs[2]);
  return {r.loss, r.squares};
}

Cost LinearCrossEntropy::cost(std::span<const TensorType> inputs,
                              std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops =
      2.0 * static_cast<double>(inputs[0].elements()) * static_cast<double>(inputs[1].shape[0]);
  return cost;
}

std::vector<TensorType> LinearCrossEntropyBackward::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &w = context.inputs[1];
  check_operands(*this, x, w, context.inputs[2]);
  const TensorType scalar{{}, wide(x.dtype)};
  for (size_t i : {3, 4}) {
    const TensorType& d = context.inputs[i];
    require(d.shape.empty() && d.dtype == scalar.dtype, *this, "C4",
            "dloss and dsquares must be wide scalars, one is ", d);
  }
  std::vector<TensorType> outputs;
  if (gradients_.dx) outputs.push_back(x);
  if (gradients_.dw) outputs.push_back({w.shape, scalar.dtype});
  if (gradients_.adds) require_sum(*this, "C5", context.inputs[5], {w.shape, scalar.dtype});
  outputs.insert(outputs.end(), 2, scalar);
  return outputs;
}

std::vector<InPlacePair> HeadGradients::in_place_pairs(int last_operand) const {
  return adds ? std::vector{InPlacePair{last_operand, int{dx}}} : std::vector<InPlacePair>{};
}

OpPtr LinearCrossEntropyBackward::adding(int output) const {
  if (!gradients_.is_dw(output)) return nullptr;
  return std::make_shared<LinearCrossEntropyBackward>(HeadGradients{gradients_.dx, true, true});
}

std::vector<InPlacePair> LinearCrossEntropyBackward::in_place_pairs() const {
  return gradients_.in_place_pairs(5);
}

std::vector<Value> LinearCrossEntropyBackward::decompose(Graph& g,
                                                         std::span<const Value> inputs) const {
  Value x = inputs[0], w = inputs[1];
  DType dtype = g.type(x).dtype;
  Rows r = row_losses(g, x, w, inputs[2]);
  const Shape shape = g.shape(r.logits);
  Value p = unary(g, UnaryKind::kExp, sub(g, r.logits, broadcast_trailing(g, r.lse, shape)));
  Value onehot = convert(g, r.onehot, g.type(p).dtype);
  Value dloss = broadcast(g, inputs[3], shape, {});
  Value dsquare = mul(g, r.lse, broadcast(g, inputs[4], g.shape(r.lse), {}));
  Value dlse = broadcast_trailing(g, tessera::add(g, dsquare, dsquare), shape);
  Value scaled = tessera::add(g, mul(g, sub(g, p, onehot), dloss), mul(g, p, dlse));
  Value grad = convert(
      g, select(g, broadcast_trailing(g, r.valid, shape), scaled, constant_like(g, scaled, 0)),
      dtype);
  std::vector<Value> outputs;
  if (gradients_.dx) outputs.push_back(dot(g, grad, w, 0, 1, 0, dtype));
  if (gradients_.dw) {
    Value dw = dot(g, grad, x, 0, 0, 0, wide(dtype));
    outputs.push_back(gradients_.adds ? tessera::add(g, inputs[5], dw) : dw);
  }
  outputs.insert(outputs.end(), {r.loss, r.squares});
  return outputs;
}

std::vector<std::pair<int, int>> LinearCrossEntropyBackward::subsumes(const Op& forward) const {
  if (!dynamic_cast<const LinearCrossEntropy*>(&forward)) return {};
  int sums = gradients_.count();
  return {{0, sums}, {1, sums + 1}};
}

Cost LinearCrossEntropyBackward::cost(std::span<const TensorType> inputs,
                                      std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 2.0 * (1 + gradients_.count()) * static_cast<double>(inputs[0].elements()) *
               static_cast<double>(inputs[1].shape[0]);
  return cost;
}

std::vector<TensorType> CountTargets::infer(const InferContext& context) const {
  require(context.inputs[0].dtype == DType::kI32, *this, "C1", "targets must be i32, are ",
          context.inputs[0]);
  return {{{}, DType::kI64}};
}

std::vector<Value> CountTargets::decompose(Graph& g, std::span<const Value> inputs) const {
  Value valid = compare(g, Comparison::kNe, inputs[0], constant_like(g, inputs[0], kIgnoreIndex));
  std::vector<int64_t> dims;
  for (size_t d = 0; d < g.shape(inputs[0]).size(); ++d) dims.push_back(static_cast<int64_t>(d));
  Value ones = convert(g, valid, DType::kI64);
  return {dims.empty() ? ones : reduce_sum(g, ones, dims)};
}

CrossEntropySums linear_cross_entropy(Graph& graph, Value x, Value w, Value targets) {
  std::vector<Value> sums = graph.add(std::make_shared<LinearCrossEntropy>(), {x, w, targets});
  return {sums[0], sums[1]};
}
Value count_targets(Graph& graph, Value targets) {
  return graph.add_one(std::make_shared<CountTargets>(), {targets});
}

}  // namespace tessera
