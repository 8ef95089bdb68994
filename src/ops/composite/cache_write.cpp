#include "ops/composite/cache_write.h"

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> CacheWrite::infer(const InferContext& context) const {
  const TensorType &cache = context.inputs[0], &x = context.inputs[1], &start = context.inputs[2],
                   &row = context.inputs[3];
  require(cache.shape.size() >= 2 && x.shape.size() == cache.shape.size() && x.shape[1] > 0 &&
              x.shape[1] <= cache.shape[1] && x.shape[0] <= cache.shape[0],
          *this, "C1", "x must be tokens of the cache: ", x, " and ", cache);
  TensorType whole = x;
  whole.shape[0] = cache.shape[0];
  whole.shape[1] = cache.shape[1];
  require(whole.shape == cache.shape && whole.dtype == cache.dtype, *this, "C2",
          "x must be like the cache but for its rows and their length: ", x, " and ", cache);
  const TensorType each{{x.shape[0]}, DType::kI32};
  require(start == each && row == each, *this, "C3", "start and row must be ", each, ", are ",
          start, " and ", row);
  return {cache};
}

std::vector<Value> CacheWrite::decompose(Graph& g, std::span<const Value> inputs) const {
  const Shape shape = g.shape(inputs[0]), written_shape = g.shape(inputs[1]);
  const int64_t batch = written_shape[0], n = written_shape[1];
  auto whole = [&](int64_t i) { return static_cast<double>(i); };
  // The sequence that writes each row of the cache, or -1.
  const TensorType pairs{{shape[0], batch}, DType::kI32};
  Value here =
      compare(g, Comparison::kEq, iota(g, pairs, 0), broadcast(g, inputs[3], pairs.shape, {1}));
  Value writer =
      reduce_max(g, select(g, here, iota(g, pairs, 1), constant(g, pairs, -1)), {1});  // [R]
  Value known = binary(g, BinaryKind::kMax, writer, constant_like(g, writer, 0));
  Value start = g.add_one(std::make_shared<Gather>(), {inputs[2], known});  // [R]
  // Its token that belongs to each place, if there is one.
  const TensorType places{{shape[0], shape[1]}, DType::kI32};
  Value token = sub(g, iota(g, places, 1), broadcast(g, start, places.shape, {0}));
  Value zero = constant(g, places, 0), last = constant(g, places, whole(n - 1));
  Value written = binary(g, BinaryKind::kAnd, compare(g, Comparison::kGe, token, zero),
                         compare(g, Comparison::kLe, token, last));
  Value any = compare(g, Comparison::kGe, writer, constant_like(g, writer, 0));
  written = binary(g, BinaryKind::kAnd, written, broadcast(g, any, places.shape, {0}));
  token = binary(g, BinaryKind::kMax, binary(g, BinaryKind::kMin, token, last), zero);
  Value first = mul(g, known, constant_like(g, known, whole(n)));
  token = tessera::add(g, token, broadcast(g, first, places.shape, {0}));
  Shape flat(written_shape.begin() + 1, written_shape.end());
  flat[0] = batch * n;
  Value spread = g.add_one(std::make_shared<Gather>(), {reshape(g, inputs[1], flat), token});
  return {select(g, broadcast_trailing(g, written, shape), spread, inputs[0])};
}

Cost CacheWrite::cost(std::span<const TensorType> inputs, std::span<const TensorType>) const {
  return {0, 2 * static_cast<double>(inputs[1].bytes())};
}

}  // namespace tessera
