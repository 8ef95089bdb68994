#include "ops/composite/rope.h"

#include "ir/continuation.h"
#include "ir/document_context.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

namespace {

void check_heads(const Op& op, const TensorType& x, const std::vector<double>& frequencies) {
  require(x.shape.size() == 4 && is_float(x.dtype), op, "C1", "x must be a float [B, T, H, D], is ",
          x);
  require(2 * static_cast<int64_t>(frequencies.size()) <= x.shape[3], op, "C2", frequencies.size(),
          " frequencies need ", 2 * frequencies.size(), " dims, a head has ", x.shape[3]);
}

// x turned by (t + offset) f, offset [B] or [B, T]; no value: it is 0.
Value turned(Graph& g, Value x, const RotaryAngles& rotary, bool inverse, Value offset) {
  const Shape shape = g.shape(x);
  DType dtype = g.type(x).dtype, wide_dtype = wide(dtype);
  auto half = static_cast<int64_t>(rotary.frequencies.size());
  Value x32 = convert(g, x, wide_dtype);
  Value a = slice(g, x32, 3, 0, half), b = slice(g, x32, 3, half, 2 * half);  // [B, T, H, R/2]
  Shape part = shape;
  part[3] = half;
  Value table = g.add_one(std::make_shared<Table>(wide_dtype, rotary.frequencies), {});
  Shape angles{shape[1], half};  // or [B, T, R/2]
  if (offset) angles.insert(angles.begin(), shape[0]);
  Value position = iota(g, {angles, wide_dtype}, offset ? 1 : 0);
  if (offset)
    position = add(g, position, broadcast_trailing(g, convert(g, offset, wide_dtype), angles));
  Value angle = mul(g, position, broadcast_leading(g, table, angles));
  auto spread = [&](Value v) {
    if (rotary.scale != 1) v = mul(g, v, constant_like(g, v, rotary.scale));
    return broadcast(g, v, part,
                     offset ? std::vector<int64_t>{0, 1, 3} : std::vector<int64_t>{1, 3});
  };
  Value cos = spread(unary(g, UnaryKind::kCos, angle)),
        sin = spread(unary(g, UnaryKind::kSin, angle));
  if (inverse) sin = unary(g, UnaryKind::kNeg, sin);
  std::vector<Value> parts{sub(g, mul(g, a, cos), mul(g, b, sin)),
                           add(g, mul(g, b, cos), mul(g, a, sin))};
  if (2 * half < shape[3]) parts.push_back(slice(g, x32, 3, 2 * half, shape[3]));
  return convert(g, concatenate(g, parts, 3), dtype);
}

}  // namespace

std::vector<TensorType> Rope::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  check_heads(*this, x, rotary_.frequencies);
  if (documents_) {
    const TensorType &starts = context.inputs[1], each{{x.shape[0], x.shape[1]}, DType::kI32};
    require(starts.shape == each.shape && starts.dtype == each.dtype, *this, "C5",
            "document_starts must be ", each, ", are ", starts);
  }
  return {x};
}

void Rope::split(PlacementContext& context) const {
  Value x = context.reduced(0);
  Placement placement = context.placement(0);
  const bool other_rows = documents_ && placement.split_on(0);
  if (other_rows || placement.split_on(1) || placement.split_on(3)) {
    x = context.replicated(0);
    placement = {};
  }
  std::vector<Value> operands{x};
  if (documents_) operands.push_back(context.replicated(1));
  context.apply(operands, placement);
}

std::vector<Value> Rope::vjp(const VjpContext& context) const {
  std::vector<Value> operands = context.node.inputs, gradients(operands.size());
  operands[0] = context.cotangents[0];
  gradients[0] =
      context.graph.add_one(std::make_shared<Rope>(rotary_, !inverse_, documents_), operands);
  return gradients;
}

std::vector<Value> Rope::decompose(Graph& g, std::span<const Value> inputs) const {
  Value offset;
  if (documents_)
    offset = unary(g, UnaryKind::kNeg, convert(g, inputs[1], wide(g.type(inputs[0]).dtype)));
  return {turned(g, inputs[0], rotary_, inverse_, offset)};
}

std::vector<Value> Rope::continue_sequence(Continuation& c) const {
  TESSERA_CHECK(!inverse_ && !documents_, "neither a gradient nor documents continue a sequence");
  auto op = std::make_shared<RopeAt>(rotary_, c.capacity());
  return {c.graph().add_one(op, {c.operand(0), c.start()})};
}

std::vector<Value> Rope::restart_at_documents(DocumentContext& c) const {
  TESSERA_CHECK(!documents_, "positions restart once");
  return {c.graph().add_one(std::make_shared<Rope>(rotary_, inverse_, true),
                            {c.operand(0), c.starts()})};
}

std::vector<TensorType> RopeAt::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &start = context.inputs[1];
  check_heads(*this, x, rotary_.frequencies);
  require(x.shape[1] <= positions_, *this, "C3", "there are ", positions_, " positions, x has ",
          x.shape[1], " tokens");
  const TensorType each{{x.shape[0]}, DType::kI32};
  require(start == each, *this, "C4", "start must be ", each, ", is ", start);
  return {x};
}

std::vector<Value> RopeAt::decompose(Graph& g, std::span<const Value> inputs) const {
  return {turned(g, inputs[0], rotary_, false, inputs[1])};
}

Value rope(Graph& graph, Value x, const RotaryAngles& rotary) {
  return graph.add_one(std::make_shared<Rope>(rotary, false), {x});
}

}  // namespace tessera
