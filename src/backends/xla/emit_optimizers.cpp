#include "backends/xla/emitter.h"
#include "ops/composite/adamw.h"
#include "ops/composite/lion.h"
#include "ops/composite/sgd.h"

namespace tessera::xla {
namespace {

// Arithmetic on the elements of a flat buffer.
struct Elements {
  MlirText& text;
  TensorType type;

  Tensor number(double x) const { return text.splat(type.shape, type.dtype, x); }
  Tensor spread(const Tensor& scalar) const { return text.spread(scalar, type.shape); }
  Tensor add(const Tensor& a, const Tensor& b) const { return text.binary("add", a, b); }
  Tensor sub(const Tensor& a, const Tensor& b) const { return text.binary("subtract", a, b); }
  Tensor mul(const Tensor& a, const Tensor& b) const { return text.binary("multiply", a, b); }
  Tensor div(const Tensor& a, const Tensor& b) const { return text.binary("divide", a, b); }
  Tensor times(const Tensor& a, double x) const { return mul(a, number(x)); }

  // That of the last segment which begins at the element or before. The definition has a plane of
  // elements x segments.
  Tensor decay(const Tensor& begins, const Tensor& decays) const {
    const Tensor index = text.iota(type.shape, begins.element, 0);
    auto entry = [&](const Tensor& table, int64_t k) {
      return spread(text.reshape(text.slice(table, 0, k, k + 1), {}));
    };
    Tensor decay = entry(decays, 0);
    for (int64_t k = 1; k < begins.shape[0]; ++k)
      decay = text.select(text.compare("GE", index, entry(begins, k)), entry(decays, k), decay);
    return decay;
  }
};

}  // namespace

// These are their definitions but for the decay.
void Emitter::adamw(const Node& node) {
  const auto& op = static_cast<const AdamW&>(*node.op);
  const Elements e{text_, type_of_output(node)};
  const Tensor w = in(node, 0), m = in(node, 1), v = in(node, 2), ok = e.spread(in(node, 6));
  auto if_ok = [&](const Tensor& after, const Tensor& before) {
    return text_.select(ok, after, before);
  };
  const Tensor g = e.mul(in(node, 3), e.spread(in(node, 5)));
  const Tensor new_m = if_ok(e.add(e.times(m, op.beta1()), e.times(g, 1 - op.beta1())), m);
  const Tensor new_v =
      if_ok(e.add(e.times(v, op.beta2()), e.times(e.mul(g, g), 1 - op.beta2())), v);
  const Tensor step = text_.convert(in(node, 7), w.element);
  auto correction = [&](double beta) {
    auto scalar = [&](double x) { return text_.splat({}, e.type.dtype, x); };
    return e.spread(e.sub(scalar(1), text_.binary("power", scalar(beta), step)));
  };
  const Tensor root = text_.unary("sqrt", e.div(new_v, correction(op.beta2())));
  const Tensor direction =
      e.add(e.div(e.div(new_m, correction(op.beta1())), e.add(root, e.number(op.epsilon()))),
            e.mul(e.decay(in(node, 8), in(node, 9)), w));
  const Tensor new_w = if_ok(e.sub(w, e.mul(e.spread(in(node, 4)), direction)), w);
  set(node.outputs[0], new_w);
  set(node.outputs[1], new_m);
  set(node.outputs[2], new_v);
  if (op.rounds()) set(node.outputs[3], text_.convert(new_w, element_of(DType::kBF16)));
}

void Emitter::lion(const Node& node) {
  const auto& op = static_cast<const Lion&>(*node.op);
  const Elements e{text_, type_of_output(node)};
  const Tensor w = in(node, 0), m = in(node, 1), ok = e.spread(in(node, 5));
  const Tensor g = e.mul(in(node, 2), e.spread(in(node, 4)));
  auto mixed = [&](double beta) { return e.add(e.times(m, beta), e.times(g, 1 - beta)); };
  const Tensor direction = mixed(op.beta1()), zero = e.number(0);
  auto is = [&](std::string_view comparison) {
    return text_.convert(text_.compare(comparison, direction, zero), w.element);
  };
  const Tensor change =
      e.add(e.sub(is("GT"), is("LT")), e.mul(e.decay(in(node, 6), in(node, 7)), w));
  const Tensor new_w = e.sub(w, e.mul(e.spread(in(node, 3)), change));
  set(node.outputs[0], text_.select(ok, new_w, w));
  set(node.outputs[1], text_.select(ok, mixed(op.beta2()), m));
}

void Emitter::sgd(const Node& node) {
  const auto& op = static_cast<const Sgd&>(*node.op);
  const Elements e{text_, type_of_output(node)};
  const Tensor w = in(node, 0), m = in(node, 1), ok = e.spread(in(node, 5));
  const Tensor g =
      e.add(e.mul(in(node, 2), e.spread(in(node, 4))), e.mul(e.decay(in(node, 6), in(node, 7)), w));
  const Tensor new_m = e.add(e.times(m, op.momentum()), g);
  const Tensor new_w = e.sub(w, e.mul(e.spread(in(node, 3)), new_m));
  set(node.outputs[0], text_.select(ok, new_w, w));
  set(node.outputs[1], text_.select(ok, new_m, m));
}

}  // namespace tessera::xla
