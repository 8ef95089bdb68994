#include "ops/composite/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> Dropout::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &keys = context.inputs[1];
  require(!x.shape.empty() && is_float(x.dtype), *this, "C1", "x must be a float [B, ...], is ", x);
  require(keys.shape == Shape{x.shape[0]} && keys.dtype == DType::kI64, *this, "C2",
          "row_keys must be i64 [B]: B = ", x.shape[0], ", they are ", keys);
  require(p_ >= 0 && p_ < 1, *this, "C3", "p must be in [0, 1), is ", p_);
  return {x};
}

void Dropout::split(PlacementContext& context) const {
  TESSERA_CHECK(part_.whole(), "dropout is split once");
  Value x = context.reduced(0), keys = context.replicated(1);
  Placement placement = context.placement(0);
  if (placement.split_on(0)) {
    x = context.replicated(0);
    placement = {};
  }
  if (placement.whole()) return context.apply({x, keys}, {});
  Graph& g = context.graph();
  auto dim = static_cast<size_t>(placement.dim);
  auto op = std::make_shared<Dropout>(p_, stream_,
                                      TensorPart{placement.dim, context.whole_type(0).shape[dim]});
  Value begin = part_begin(g, placement.axes, g.shape(x)[dim]);
  context.put(0, g.add_one(op, {x, keys, begin}), placement);
}

std::vector<Value> Dropout::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  std::vector<Value> operands = context.node.inputs;
  operands[0] = convert(g, context.cotangents[0], g.type(operands[0]).dtype);
  std::vector<Value> gradients(operands.size());
  gradients[0] = g.add_one(context.node.op, operands);
  return gradients;
}

std::vector<Value> Dropout::decompose(Graph& g, std::span<const Value> inputs) const {
  const Shape shape = g.shape(inputs[0]);
  DType dtype = g.type(inputs[0]).dtype;
  Value begin = part_.whole() ? Value{} : inputs[2];
  Value bits =
      random_bits(g, inputs[1], begin, Shape(shape.begin() + 1, shape.end()), stream_, part_);
  return {convert(g, keep_by_bits(g, convert(g, inputs[0], wide(dtype)), bits, p_), dtype)};
}

int32_t dropout_threshold(double p) {
  return static_cast<int32_t>(std::clamp<int64_t>(std::llround(p * 65536), 0, 65535));
}

double dropout_scale(double p) { return 65536.0 / (65536 - dropout_threshold(p)); }

Value keep_by_bits(Graph& g, Value x, Value bits, double p) {
  Value kept = compare(g, Comparison::kGe, bits, constant_like(g, bits, dropout_threshold(p)));
  Value scaled = mul(g, x, constant_like(g, x, dropout_scale(p)));
  return select(g, kept, scaled, constant_like(g, x, 0));
}

int64_t dropout_row_key(uint64_t seed, uint64_t step, uint64_t sample) {
  // The seed's generator gives a key a step, whose own gives the rows'.
  auto of_step = philox(seed, stream_of("dropout"), step);
  auto of_row = philox((uint64_t{of_step[1]} << 32) | of_step[0], stream_of("dropout.row"), sample);
  return static_cast<int64_t>(((uint64_t{of_row[1]} << 32) | of_row[0]) >> 11);
}

Value dropout(Graph& graph, Value x, Value row_keys, double p, std::string stream) {
  if (p == 0) return x;
  return graph.add_one(std::make_shared<Dropout>(p, std::move(stream)), {x, row_keys});
}

}  // namespace tessera
