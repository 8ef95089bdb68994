#include "ops/primitive/reduction.h"

#include <algorithm>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> Reduce::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  TensorType y{{}, x.dtype};
  for (size_t i = 0; i < dims_.size(); ++i) {
    require(dims_[i] >= 0 && dims_[i] < static_cast<int64_t>(x.shape.size()) &&
                (i == 0 || dims_[i] > dims_[i - 1]),
            *this, "C1", "dims ", dims_, " of ", x, " must ascend");
  }
  require(reduction_ == Reduction::kSum || x.elements() > 0, *this, "C2", "maximum of nothing");
  for (int64_t d = 0; d < static_cast<int64_t>(x.shape.size()); ++d) {
    if (std::find(dims_.begin(), dims_.end(), d) == dims_.end())
      y.shape.push_back(x.shape[static_cast<size_t>(d)]);
  }
  return {y};
}

std::vector<Value> Reduce::vjp(const VjpContext& context) const {
  const Shape& shape = context.graph.shape(context.node.inputs[0]);
  std::vector<int64_t> kept;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (std::find(dims_.begin(), dims_.end(), d) == dims_.end()) kept.push_back(d);
  }
  return {broadcast(context.graph, context.cotangents[0], shape, kept)};
}

Cost Reduce::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return {static_cast<double>(inputs[0].elements()),
          static_cast<double>(inputs[0].bytes() + outputs[0].bytes())};
}

std::vector<TensorType> Dot::infer(const InferContext& context) const {
  const TensorType &a = context.inputs[0], &b = context.inputs[1];
  auto fits = [&](const TensorType& t, int64_t contract) {
    return contract >= batch_ && contract < static_cast<int64_t>(t.shape.size());
  };
  require(fits(a, contract_a_) && fits(b, contract_b_), *this, "C1", "contracted dims ",
          contract_a_, " and ", contract_b_, " of ", a, " and ", b);
  require(a.dtype == b.dtype && is_float(a.dtype), *this, "C2",
          "operands must have one float dtype: ", a, " and ", b);
  require(a.shape[static_cast<size_t>(contract_a_)] == b.shape[static_cast<size_t>(contract_b_)],
          *this, "C3", "contracted sizes differ: dim ", contract_a_, " of ", a, ", dim ",
          contract_b_, " of ", b);
  TensorType y{{}, out_};
  for (int64_t d = 0; d < static_cast<int64_t>(a.shape.size()); ++d) {
    auto i = static_cast<size_t>(d);
    if (d < batch_) {
      require(a.shape[i] == b.shape[i], *this, "C4", "batch dims differ: ", a, " and ", b);
    }
    if (d != contract_a_) y.shape.push_back(a.shape[i]);
  }
  for (int64_t d = batch_; d < static_cast<int64_t>(b.shape.size()); ++d) {
    if (d != contract_b_) y.shape.push_back(b.shape[static_cast<size_t>(d)]);
  }
  return {y};
}

// With free dims F of a and G of b: y[batch, F, G]. da contracts dy's G with b's G, which may be
// several dims: both are reshaped to one.
std::vector<Value> Dot::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value dy = context.cotangents[0];
  auto gradient = [&](int which) {
    Value self = context.node.inputs[static_cast<size_t>(which)],
          other = context.node.inputs[static_cast<size_t>(1 - which)];
    int64_t self_contract = which == 0 ? contract_a_ : contract_b_,
            other_contract = which == 0 ? contract_b_ : contract_a_;
    const Shape self_shape = g.shape(self), other_shape = g.shape(other);
    Shape batch_shape(self_shape.begin(), self_shape.begin() + batch_);
    int64_t contracted = self_shape[static_cast<size_t>(self_contract)];
    int64_t batch_size = num_elements(batch_shape);
    int64_t self_free =
        batch_size && contracted ? num_elements(self_shape) / batch_size / contracted : 0;
    int64_t other_free =
        batch_size && contracted ? num_elements(other_shape) / batch_size / contracted : 0;
    // dy as [batch, F, G]; other as [batch, free, K] or [batch, K, free]: contracted dim first or
    // last only.
    Shape dy3 = batch_shape, other3 = batch_shape;
    bool other_last = other_contract == static_cast<int64_t>(other_shape.size()) - 1;
    TESSERA_CHECK(other_last || other_contract == batch_,
                  "dot gradient needs the contracted dim first or last");
    dy3.insert(dy3.end(),
               {which == 0 ? self_free : other_free, which == 0 ? other_free : self_free});
    other3.insert(other3.end(),
                  {other_last ? other_free : contracted, other_last ? contracted : other_free});
    Value y = reshape(g, dy, dy3), o = reshape(g, other, other3);
    // result [batch, self_free, contracted]
    Value r = dot(g, y, convert(g, o, g.type(y).dtype), batch_, which == 0 ? batch_ + 1 : batch_,
                  other_last ? batch_ : batch_ + 1, g.type(self).dtype);
    bool self_last = self_contract == static_cast<int64_t>(self_shape.size()) - 1;
    if (!self_last) {
      TESSERA_CHECK(self_contract == batch_, "dot gradient needs the contracted dim first or last");
      std::vector<int64_t> order;
      for (int64_t d = 0; d < batch_; ++d) order.push_back(d);
      order.insert(order.end(), {batch_ + 1, batch_});
      r = transpose(g, r, order);
    }
    return reshape(g, r, self_shape);
  };
  return {context.needed[0] ? gradient(0) : Value{}, context.needed[1] ? gradient(1) : Value{}};
}

Cost Dot::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  double k = static_cast<double>(inputs[0].shape[static_cast<size_t>(contract_a_)]);
  return {2 * k * static_cast<double>(outputs[0].elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + outputs[0].bytes())};
}

Value reduce_sum(Graph& graph, Value x, std::vector<int64_t> dims) {
  return graph.add_one(std::make_shared<Reduce>(Reduction::kSum, std::move(dims)), {x});
}
Value reduce_max(Graph& graph, Value x, std::vector<int64_t> dims) {
  return graph.add_one(std::make_shared<Reduce>(Reduction::kMax, std::move(dims)), {x});
}
Value dot(Graph& graph, Value a, Value b, int64_t batch, int64_t contract_a, int64_t contract_b,
          DType out) {
  return graph.add_one(std::make_shared<Dot>(batch, contract_a, contract_b, out), {a, b});
}

}  // namespace tessera
