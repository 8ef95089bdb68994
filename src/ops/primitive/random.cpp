#include "ops/primitive/random.h"

namespace tessera {

std::vector<TensorType> RandomBits::infer(const InferContext& context) const {
  const TensorType& keys = context.inputs[0];
  require(keys.shape.size() == 1 && keys.dtype == DType::kI64, *this, "C1",
          "row_keys must be i64 [B], are ", keys);
  Shape shape{keys.shape[0]};
  shape.insert(shape.end(), row_.begin(), row_.end());
  if (!part_.whole()) {
    const TensorType& begin = context.inputs[1];
    require(begin.shape.empty() && begin.dtype == DType::kI32, *this, "C2",
            "begin must be an i32 scalar, is ", begin);
    require(part_.dim >= 1 && part_.dim < static_cast<int64_t>(shape.size()) &&
                shape[static_cast<size_t>(part_.dim)] <= part_.size,
            *this, "C3", shape, " is no part of ", part_.size, " along dim ", part_.dim);
  }
  return {{shape, DType::kI32}};
}

Value random_bits(Graph& graph, Value row_keys, Value begin, Shape row, std::string stream,
                  TensorPart part) {
  std::vector<Value> operands{row_keys};
  if (!part.whole()) operands.push_back(begin);
  return graph.add_one(std::make_shared<RandomBits>(std::move(row), std::move(stream), part),
                       operands);
}

}  // namespace tessera
