#include "ops/composite/vocabulary_parallel.h"

#include <limits>

#include "base/ignore_index.h"
#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

void check_operands(const Op& op, std::span<const TensorType> inputs) {
  const TensorType &x = inputs[0], &w = inputs[1], &targets = inputs[2], &valid = inputs[3];
  require(x.shape.size() == 2 && is_float(x.dtype), op, "C1", "x must be a float [N, D], is ", x);
  require(w.shape.size() == 2 && w.shape[1] == x.shape[1] && w.dtype == x.dtype, op, "C2",
          "w must be [V, D] of x's dtype: D = ", x.shape[1], ", x is ", x, ", w is ", w);
  require(targets.shape == Shape{x.shape[0]} && targets.dtype == DType::kI32, op, "C3",
          "targets must be i32 [N]: N = ", x.shape[0], ", targets are ", targets);
  require(valid.shape.empty() && valid.dtype == DType::kI32, op, "C4",
          "valid must be an i32 scalar, is ", valid);
}

// [N, V]: logits in wide dtype, whether the column is valid, whether it is the row's target.
struct Columns {
  Value logits, valid, target;
  Shape shape;
};

Columns columns(Graph& g, std::span<const Value> inputs) {
  Columns c;
  c.logits = dot(g, inputs[0], inputs[1], 0, 1, 1, wide(g.type(inputs[0]).dtype));
  c.shape = g.shape(c.logits);
  Value column = iota(g, {c.shape, DType::kI32}, 1);
  c.valid = compare(g, Comparison::kLt, column, broadcast(g, inputs[3], c.shape, {}));
  Value equal = compare(g, Comparison::kEq, broadcast_trailing(g, inputs[2], c.shape), column);
  c.target = binary(g, BinaryKind::kAnd, c.valid, equal);
  return c;
}

Value zeros_like(Graph& g, Value x) { return constant_like(g, x, 0); }

double head_flops(std::span<const TensorType> inputs) {
  return 2.0 * static_cast<double>(inputs[0].elements()) * static_cast<double>(inputs[1].shape[0]);
}

}  // namespace

std::vector<TensorType> LinearLogSumExp::infer(const InferContext& context) const {
  check_operands(*this, context.inputs);
  TensorType row{{context.inputs[0].shape[0]}, wide(context.inputs[0].dtype)};
  return {row, row};
}

std::vector<Value> LinearLogSumExp::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  std::vector<Value> operands = context.node.inputs;
  Value lse = context.node.outputs[0];
  operands.push_back(lse);
  for (Value d : context.cotangents) operands.push_back(d ? d : zeros_like(g, lse));
  HeadGradients wanted{context.needed[0], context.needed[1]};
  auto outputs = g.add(std::make_shared<LinearLogSumExpBackward>(wanted), operands);
  return {wanted.dx ? outputs[0] : Value{}, wanted.dw ? outputs[wanted.dx] : Value{}, Value{},
          Value{}};
}

std::vector<Value> LinearLogSumExp::decompose(Graph& g, std::span<const Value> inputs) const {
  Columns c = columns(g, inputs);
  Value nothing = constant_like(g, c.logits, -std::numeric_limits<double>::infinity());
  Value m = reduce_max(g, select(g, c.valid, c.logits, nothing), {1});
  Value e = unary(g, UnaryKind::kExp, sub(g, c.logits, broadcast_trailing(g, m, c.shape)));
  // Where no column is valid, e is not a number and not used.
  Value sum = reduce_sum(g, select(g, c.valid, e, zeros_like(g, e)), {1});
  Value hit = reduce_sum(g, select(g, c.target, c.logits, zeros_like(g, c.logits)), {1});
  return {tessera::add(g, m, unary(g, UnaryKind::kLog, sum)), hit};
}

Cost LinearLogSumExp::cost(std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = head_flops(inputs);
  return cost;
}

std::vector<TensorType> LinearLogSumExpBackward::infer(const InferContext& context) const {
  check_operands(*this, context.inputs);
  const TensorType &x = context.inputs[0], &w = context.inputs[1];
  for (size_t i = 4; i < 7; ++i) {
    const TensorType& row = context.inputs[i];
    require(row.shape == Shape{x.shape[0]} && row.dtype == wide(x.dtype), *this, "C5",
            "lse and the cotangents must be [N] and wide, one is ", row);
  }
  std::vector<TensorType> outputs;
  if (gradients_.dx) outputs.push_back(x);
  if (gradients_.dw) outputs.push_back({w.shape, wide(w.dtype)});
  if (gradients_.adds) require_sum(*this, "C6", context.inputs[7], {w.shape, wide(w.dtype)});
  return outputs;
}

OpPtr LinearLogSumExpBackward::adding(int output) const {
  if (!gradients_.is_dw(output)) return nullptr;
  return std::make_shared<LinearLogSumExpBackward>(HeadGradients{gradients_.dx, true, true});
}

std::vector<InPlacePair> LinearLogSumExpBackward::in_place_pairs() const {
  return gradients_.in_place_pairs(7);
}

std::vector<Value> LinearLogSumExpBackward::decompose(Graph& g,
                                                      std::span<const Value> inputs) const {
  Value x = inputs[0], w = inputs[1];
  DType dtype = g.type(x).dtype;
  Columns c = columns(g, inputs);
  auto by_row = [&](size_t i) { return broadcast_trailing(g, inputs[i], c.shape); };
  Value p = unary(g, UnaryKind::kExp, sub(g, c.logits, by_row(4)));
  Value soft = select(g, c.valid, mul(g, by_row(5), p), zeros_like(g, p));
  Value hard = select(g, c.target, by_row(6), zeros_like(g, p));
  Value grad = convert(g, tessera::add(g, soft, hard), dtype);
  std::vector<Value> outputs;
  if (gradients_.dx) outputs.push_back(dot(g, grad, w, 0, 1, 0, dtype));
  if (gradients_.dw) {
    Value dw = dot(g, grad, x, 0, 0, 0, wide(dtype));
    outputs.push_back(gradients_.adds ? tessera::add(g, inputs[7], dw) : dw);
  }
  return outputs;
}

Cost LinearLogSumExpBackward::cost(std::span<const TensorType> inputs,
                                   std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = (1 + gradients_.count()) * head_flops(inputs);
  cost.recomputed_flops = head_flops(inputs);  // the logits: the forward op stays
  return cost;
}

CrossEntropySums vocabulary_parallel_cross_entropy(Graph& g, Value x, Value w, Value targets,
                                                   int64_t vocabulary, AxisSet axes) {
  const TensorType index{{}, DType::kI32};
  auto rows = static_cast<double>(g.shape(w)[0]);
  Value begin = part_begin(g, axes, g.shape(w)[0]);
  Value left = sub(g, constant(g, index, static_cast<double>(vocabulary)), begin);
  Value valid =
      binary(g, BinaryKind::kMin, binary(g, BinaryKind::kMax, left, constant(g, index, 0)),
             constant(g, index, rows));
  // kIgnoreIndex is below 0 and stays so: it hits no row.
  Value local = sub(g, targets, broadcast(g, begin, g.shape(targets), {}));
  auto parts = g.add(std::make_shared<LinearLogSumExp>(), {x, w, local, valid});
  Value highest = g.add_one(std::make_shared<AllReduceOp>(axes, Reduction::kMax), {parts[0]});
  Value sum = g.add_one(std::make_shared<AllReduceOp>(axes, Reduction::kSum),
                        {unary(g, UnaryKind::kExp, sub(g, parts[0], highest))});
  Value hit = g.add_one(std::make_shared<AllReduceOp>(axes, Reduction::kSum), {parts[1]});
  Value lse = add(g, highest, unary(g, UnaryKind::kLog, sum));
  Value counted = compare(g, Comparison::kNe, targets, constant_like(g, targets, kIgnoreIndex));
  auto sum_counted = [&](Value by_row) {
    return reduce_sum(g, select(g, counted, by_row, zeros_like(g, by_row)), {0});
  };
  return {sum_counted(sub(g, lse, hit)), sum_counted(mul(g, lse, lse))};
}

}  // namespace tessera
