#include "ops/composite/cache_write.h"

#include <numeric>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

// Dims 0 and 1 exchanged.
Value tokens_first(Graph& g, Value x) {
  std::vector<int64_t> order(g.shape(x).size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[1]);
  return transpose(g, x, order);
}

}  // namespace

std::vector<TensorType> CacheWrite::infer(const InferContext& context) const {
  const TensorType &cache = context.inputs[0], &x = context.inputs[1], &start = context.inputs[2];
  require(cache.shape.size() >= 2 && x.shape.size() == cache.shape.size() && x.shape[1] > 0 &&
              x.shape[1] <= cache.shape[1],
          *this, "C1",
          cat("x must be tokens of the cache: ", to_string(x), " and ", to_string(cache)));
  TensorType row = x;
  row.shape[1] = cache.shape[1];
  require(row.shape == cache.shape && row.dtype == cache.dtype, *this, "C2",
          cat("x must be like the cache but for its length: ", to_string(x), " and ",
              to_string(cache)));
  require(start.dtype == DType::kI32 && start.shape.empty(), *this, "C3",
          cat("start must be i32 [], is ", to_string(start)));
  return {cache};
}

std::vector<Value> CacheWrite::decompose(Graph& g, std::span<const Value> inputs) const {
  Value cache = tokens_first(g, inputs[0]), x = tokens_first(g, inputs[1]);
  const Shape shape = g.shape(cache);
  const TensorType row{{shape[0]}, DType::kI32};
  // Row of x that belongs to each row of the cache, if there is one.
  Value from = sub(g, iota(g, row, 0), broadcast(g, inputs[2], row.shape, {}));
  Value zero = constant(g, row, 0), last = constant(g, row, static_cast<double>(g.shape(x)[0] - 1));
  Value written = binary(g, BinaryKind::kAnd, compare(g, Comparison::kGe, from, zero),
                         compare(g, Comparison::kLe, from, last));
  from = binary(g, BinaryKind::kMax, binary(g, BinaryKind::kMin, from, last), zero);
  Value spread = g.add_one(std::make_shared<Gather>(), {x, from});
  return {tokens_first(g, select(g, broadcast_trailing(g, written, shape), spread, cache))};
}

Cost CacheWrite::cost(std::span<const TensorType> inputs, std::span<const TensorType>) const {
  return {0, 2 * static_cast<double>(inputs[1].bytes())};
}

}  // namespace tessera
