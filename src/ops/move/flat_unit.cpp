#include "ops/move/flat_unit.h"

#include <algorithm>

#include "ops/primitive/elementwise.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> Unflatten::infer(const InferContext& context) const {
  const TensorType& flat = context.inputs[0];
  require(flat.shape.size() == 1, *this, "C1", "operand must be flat, is ", flat);
  std::vector<TensorType> types;
  for (const UnitMember& m : members_) {
    require(m.offset >= 0 && m.offset + num_elements(m.shape) <= flat.shape[0], *this, "C2",
            m.shape, " at ", m.offset, " lies outside ", flat);
    types.push_back({m.shape, flat.dtype});
  }
  return types;
}

std::vector<Value> Unflatten::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  std::vector<Value> parts;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!context.cotangents[i]) continue;
    parts.push_back(context.cotangents[i]);
    offsets.push_back(members_[i].offset);
  }
  // A buffer has one dtype. Where theirs differ (one from a kernel that sums in f32, one from a
  // plain op in bf16) the wide one loses nothing.
  auto differs = [&](Value v) { return g.type(v).dtype != g.type(parts[0]).dtype; };
  if (std::any_of(parts.begin(), parts.end(), differs)) {
    for (Value& v : parts) v = convert(g, v, wide(g.type(v).dtype));
  }
  int64_t size = g.shape(context.node.inputs[0])[0];
  return {g.add_one(std::make_shared<Flatten>(size, offsets), parts)};
}

std::vector<int64_t> Unflatten::view_offsets() const {
  std::vector<int64_t> offsets;
  for (const UnitMember& m : members_) offsets.push_back(m.offset);
  return offsets;
}

std::vector<TensorType> Flatten::infer(const InferContext& context) const {
  require(!context.inputs.empty() && context.inputs.size() == offsets_.size(), *this, "C1",
          "one offset an operand");
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const TensorType& x = context.inputs[i];
    require(x.dtype == context.inputs[0].dtype, *this, "C2",
            "operands must have one dtype: ", context.inputs[0], " and ", x);
    ranges.push_back({offsets_[i], offsets_[i] + x.elements()});
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t end = 0;
  for (auto [begin, stop] : ranges) {
    require(begin >= end && stop <= size_, *this, "C3", "operands overlap or leave the buffer of ",
            size_, " at ", begin);
    end = stop;
  }
  return {{{size_}, context.inputs[0].dtype}};
}

std::vector<Value> Flatten::vjp(const VjpContext& context) const {
  std::vector<UnitMember> members;
  for (size_t i = 0; i < offsets_.size(); ++i)
    members.push_back({offsets_[i], context.graph.shape(context.node.inputs[i])});
  return context.graph.add(std::make_shared<Unflatten>(members), {context.cotangents[0]});
}

}  // namespace tessera
