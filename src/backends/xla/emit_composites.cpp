#include "backends/xla/emitter.h"
#include "ops/composite/adamw.h"

namespace tessera::xla {

// Composites whose definition would take memory of another order.
bool Emitter::emit_composite(const Node& node) {
  if (node.op->name() != "adamw") return false;
  adamw(node);
  return true;
}

// By the definition but for the decay of an element: that has a plane of elements x segments there.
void Emitter::adamw(const Node& node) {
  const auto& op = static_cast<const AdamW&>(*node.op);
  const TensorType& type = type_of_output(node);
  const Shape& shape = type.shape;
  const Tensor w = in(node, 0), m = in(node, 1), v = in(node, 2);
  const Tensor begins = in(node, 8), decays = in(node, 9);
  auto number = [&](double x) { return text_.splat(shape, type.dtype, x); };
  auto scalar = [&](double x) { return text_.splat({}, type.dtype, x); };
  auto add = [&](const Tensor& a, const Tensor& b) { return text_.binary("add", a, b); };
  auto sub = [&](const Tensor& a, const Tensor& b) { return text_.binary("subtract", a, b); };
  auto mul = [&](const Tensor& a, const Tensor& b) { return text_.binary("multiply", a, b); };
  auto div = [&](const Tensor& a, const Tensor& b) { return text_.binary("divide", a, b); };
  const Tensor ok = text_.spread(in(node, 6), shape);
  auto if_ok = [&](const Tensor& after, const Tensor& before) {
    return text_.select(ok, after, before);
  };

  const Tensor g = mul(in(node, 3), text_.spread(in(node, 5), shape));
  const Tensor new_m = if_ok(add(mul(m, number(op.beta1())), mul(g, number(1 - op.beta1()))), m);
  const Tensor new_v =
      if_ok(add(mul(v, number(op.beta2())), mul(mul(g, g), number(1 - op.beta2()))), v);
  const Tensor step = text_.convert(in(node, 7), element_of(type.dtype));
  auto correction = [&](double beta) {
    return text_.spread(sub(scalar(1), text_.binary("power", scalar(beta), step)), shape);
  };
  // That of the last segment which begins at the element or before.
  const Tensor index = text_.iota(shape, begins.element, 0);
  auto entry = [&](const Tensor& table, int64_t k) {
    return text_.spread(text_.reshape(text_.slice(table, 0, k, k + 1), {}), shape);
  };
  Tensor decay = entry(decays, 0);
  for (int64_t k = 1; k < begins.shape[0]; ++k)
    decay = text_.select(text_.compare("GE", index, entry(begins, k)), entry(decays, k), decay);

  const Tensor root = text_.unary("sqrt", div(new_v, correction(op.beta2())));
  const Tensor direction =
      add(div(div(new_m, correction(op.beta1())), add(root, number(op.epsilon()))), mul(decay, w));
  const Tensor new_w = if_ok(sub(w, mul(text_.spread(in(node, 4), shape), direction)), w);
  set(node.outputs[0], new_w);
  set(node.outputs[1], new_m);
  set(node.outputs[2], new_v);
}

}  // namespace tessera::xla
