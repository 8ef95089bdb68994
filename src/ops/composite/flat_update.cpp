#include "ops/composite/flat_update.h"

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> infer_flat_update(const InferContext& context, const Op& op, size_t kept) {
  const auto& inputs = context.inputs;
  const TensorType& w = inputs[0];
  require(w.shape.size() == 1 && (w.dtype == DType::kF32 || w.dtype == DType::kF64), op, "C1",
          "w must be f32 [n], is ", w);
  const size_t lr = kept + 2, begin = inputs.size() - 2, decay = begin + 1;
  for (size_t i = 1; i < lr; ++i) {
    require(inputs[i].shape == w.shape && inputs[i].dtype == w.dtype, op, "C2",
            "what is kept and g must be like w: ", w, " and ", inputs[i]);
  }
  for (size_t i : {lr, lr + 1}) {
    require(inputs[i].shape.empty() && inputs[i].dtype == w.dtype, op, "C3",
            "lr and scale must be scalars of w's dtype");
  }
  require(inputs[lr + 2].shape.empty() && inputs[lr + 2].dtype == DType::kBool, op, "C4",
          "ok must be a bool scalar");
  require(inputs[begin].shape.size() == 1 && inputs[begin].dtype == DType::kI64 &&
              inputs[decay].dtype == w.dtype && inputs[begin].shape == inputs[decay].shape,
          op, "C5", "segment_begin must be i64 [S], segment_decay [S] of w's dtype");
  return std::vector<TensorType>(1 + kept, w);
}

// The sum over segments s of (begin_s <= i) * (decay_s - decay_{s-1}): the last that begins before
// i.
Value segment_decay(Graph& g, Value like, Value begin, Value decay) {
  const TensorType type{g.shape(like), g.type(like).dtype};
  int64_t n = type.shape[0], segments = g.shape(begin)[0];
  Shape plane{n, segments};
  Value begun = compare(g, Comparison::kLe, broadcast(g, begin, plane, {1}),
                        iota(g, {plane, DType::kI64}, 0));
  Value previous =
      concatenate(g, {constant(g, {{1}, type.dtype}, 0), slice(g, decay, 0, 0, segments - 1)}, 0);
  Value step_up = sub(g, decay, previous);
  return reduce_sum(g, mul(g, convert(g, begun, type.dtype), broadcast(g, step_up, plane, {1})),
                    {1});
}

}  // namespace tessera
