#include "ops/composite/sum_n.h"

#include "ops/primitive/elementwise.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> SumN::infer(const InferContext& context) const {
  require(context.inputs.size() >= 2, *this, "C1", "at least two operands");
  for (const TensorType& x : context.inputs) {
    require(x.shape == context.inputs[0].shape && x.dtype == context.inputs[0].dtype &&
                is_float(x.dtype),
            *this, "C2", "operands must have one shape and float dtype: ", context.inputs[0],
            " and ", x);
  }
  return {context.inputs[0]};
}

std::vector<Value> SumN::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value sum = convert(g, inputs[0], wide(dtype));
  for (Value x : inputs.subspan(1)) sum = tessera::add(g, sum, convert(g, x, wide(dtype)));
  return {convert(g, sum, dtype)};
}

std::vector<Value> SumN::vjp(const VjpContext& context) const {
  return std::vector<Value>(context.node.inputs.size(), context.cotangents[0]);
}

}  // namespace tessera
