#include "ops/composite/swiglu.h"

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> Swiglu::infer(const InferContext& context) const {
  const TensorType &gate = context.inputs[0], &up = context.inputs[1];
  require(gate.shape == up.shape && gate.dtype == up.dtype && is_float(gate.dtype), *this, "C1",
          "gate and up must have one shape and float dtype: ", gate, " and ", up);
  return {gate};
}

std::vector<Value> Swiglu::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value gate = context.node.inputs[0], up = context.node.inputs[1];
  return g.add(std::make_shared<SwigluBackward>(),
               {gate, up, convert(g, context.cotangents[0], g.type(gate).dtype)});
}

std::vector<Value> Swiglu::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value gate = convert(g, inputs[0], wide(dtype)), up = convert(g, inputs[1], wide(dtype));
  return {convert(g, mul(g, mul(g, gate, unary(g, UnaryKind::kLogistic, gate)), up), dtype)};
}

std::vector<TensorType> SwigluBackward::infer(const InferContext& context) const {
  const TensorType &gate = context.inputs[0], &up = context.inputs[1], &dy = context.inputs[2];
  require(gate.shape == up.shape && gate.dtype == up.dtype && dy.shape == gate.shape &&
              dy.dtype == gate.dtype,
          *this, "C1", "gate, up and dy must have one shape and dtype: ", gate, ", ", up, ", ", dy);
  return {gate, up};
}

std::vector<Value> SwigluBackward::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value gate = convert(g, inputs[0], wide(dtype)), up = convert(g, inputs[1], wide(dtype)),
        dy = convert(g, inputs[2], wide(dtype));
  Value s = unary(g, UnaryKind::kLogistic, gate), one = constant_like(g, s, 1);
  Value slope = mul(g, s, tessera::add(g, one, mul(g, gate, sub(g, one, s))));
  return {convert(g, mul(g, mul(g, dy, up), slope), dtype),
          convert(g, mul(g, dy, mul(g, gate, s)), dtype)};
}

Value swiglu(Graph& graph, Value gate, Value up) {
  return graph.add_one(std::make_shared<Swiglu>(), {gate, up});
}

}  // namespace tessera
