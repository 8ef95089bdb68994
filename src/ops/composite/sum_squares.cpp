#include "ops/composite/sum_squares.h"

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> SumSquares::infer(const InferContext& context) const {
  require(is_float(context.inputs[0].dtype), *this, "C1", "operand must be a float, is ",
          context.inputs[0]);
  return {{{}, wide(context.inputs[0].dtype)}};
}

std::vector<Value> SumSquares::decompose(Graph& g, std::span<const Value> inputs) const {
  Value x = convert(g, inputs[0], wide(g.type(inputs[0]).dtype));
  x = reshape(g, x, {g.type(x).elements()});
  return {reduce_sum(g, mul(g, x, x), {0})};
}

}  // namespace tessera
