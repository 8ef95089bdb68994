#include "ops/primitive/shaping.h"

#include <algorithm>
#include <numeric>

#include "ir/continuation.h"
#include "ir/document_context.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"

namespace tessera {

std::vector<TensorType> Iota::infer(const InferContext&) const {
  require(dim_ >= 0 && dim_ < static_cast<int64_t>(type_.shape.size()), *this, "C1", "dim ", dim_,
          " of ", type_);
  return {{type_.shape, type_.dtype}};
}

std::vector<Value> Iota::continue_sequence(Continuation& c) const {
  Graph& g = c.graph();
  Value start = convert(g, c.start(), type_.dtype);
  std::vector<int64_t> batch{0};
  if (dim_ == 0) {
    TESSERA_CHECK(g.shape(start)[0] == 1,
                  cat("several sequences whose tokens are numbered once (", c.node().scope, ")"));
    start = reshape(g, start, {});
    batch.clear();
  }
  return {tessera::add(g, c.same()[0], broadcast(g, start, type_.shape, batch))};
}

std::vector<Value> Iota::restart_at_documents(DocumentContext& c) const {
  Graph& g = c.graph();
  const Shape rows = g.shape(c.starts());
  TESSERA_CHECK(dim_ == 1 && type_.shape.size() >= 2 && type_.shape[0] == rows[0] &&
                    type_.shape[1] == rows[1],
                cat("numbers of tokens must be [B, T, ...], are ", to_string(type_), " (",
                    c.node().scope, ")"));
  Value starts = broadcast_trailing(g, convert(g, c.starts(), type_.dtype), type_.shape);
  return {sub(g, c.same()[0], starts)};
}

std::vector<TensorType> Reshape::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(num_elements(shape_) == x.elements(), *this, "C1", "cannot view ", x, " as ", shape_);
  return {{shape_, x.dtype}};
}

std::vector<Value> Reshape::vjp(const VjpContext& context) const {
  return {
      reshape(context.graph, context.cotangents[0], context.graph.shape(context.node.inputs[0]))};
}

void Reshape::split(PlacementContext& context) const {
  Value x = context.reduced(0);
  Placement placement = context.placement(0);
  if (placement.whole()) return context.put(0, reshape(context.graph(), x, shape_), {});
  int64_t ranks = context.graph().mesh().size(placement.axes), outer = 1, before = 1;
  const Shape& from = context.whole_type(0).shape;
  for (int64_t d = 0; d < placement.dim; ++d) outer *= from[static_cast<size_t>(d)];
  for (size_t d = 0; d < shape_.size(); before *= shape_[d++]) {
    if (before != outer || shape_[d] % ranks != 0) continue;
    Shape local = shape_;
    local[d] /= ranks;
    return context.put(0, reshape(context.graph(), x, local),
                       {Placement::Kind::kSplit, static_cast<int64_t>(d), placement.axes});
  }
  context.put(0, reshape(context.graph(), context.replicated(0), shape_), {});
}

std::vector<TensorType> Transpose::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(order_.size() == x.shape.size(), *this, "C1", "order has ", order_.size(),
          " dims, the operand is ", x);
  std::vector<bool> seen(order_.size());
  TensorType y = x;
  for (size_t i = 0; i < order_.size(); ++i) {
    require(order_[i] >= 0 && order_[i] < static_cast<int64_t>(order_.size()) &&
                !seen[static_cast<size_t>(order_[i])],
            *this, "C2", "order must be a permutation");
    seen[static_cast<size_t>(order_[i])] = true;
    y.shape[i] = x.shape[static_cast<size_t>(order_[i])];
  }
  return {y};
}

void Transpose::split(PlacementContext& context) const {
  Value x = context.reduced(0);
  Placement placement = context.placement(0);
  if (placement.split())
    placement.dim = std::find(order_.begin(), order_.end(), placement.dim) - order_.begin();
  context.apply({x}, placement);
}

std::vector<Value> Transpose::vjp(const VjpContext& context) const {
  std::vector<int64_t> inverse(order_.size());
  for (size_t i = 0; i < order_.size(); ++i)
    inverse[static_cast<size_t>(order_[i])] = static_cast<int64_t>(i);
  return {transpose(context.graph, context.cotangents[0], inverse)};
}

std::vector<TensorType> Broadcast::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(dims_.size() == x.shape.size(), *this, "C1", "one output dim for each dim of ", x);
  for (size_t i = 0; i < dims_.size(); ++i) {
    require(dims_[i] >= 0 && dims_[i] < static_cast<int64_t>(shape_.size()) &&
                (i == 0 || dims_[i] > dims_[i - 1]),
            *this, "C2", "output dims must ascend");
    require(shape_[static_cast<size_t>(dims_[i])] == x.shape[i], *this, "C3", "dim ", i, " of ", x,
            " does not fit ", shape_);
  }
  return {{shape_, x.dtype}};
}

std::vector<Value> Broadcast::vjp(const VjpContext& context) const {
  std::vector<int64_t> repeated;
  for (int64_t d = 0; d < static_cast<int64_t>(shape_.size()); ++d) {
    if (std::find(dims_.begin(), dims_.end(), d) == dims_.end()) repeated.push_back(d);
  }
  if (repeated.empty()) return {context.cotangents[0]};
  return {reduce_sum(context.graph, context.cotangents[0], repeated)};
}

std::vector<TensorType> Slice::infer(const InferContext& context) const {
  TensorType y = context.inputs[0];
  require(dim_ >= 0 && dim_ < static_cast<int64_t>(y.shape.size()), *this, "C1", "dim ", dim_,
          " of ", y);
  require(begin_ >= 0 && begin_ <= end_ && end_ <= y.shape[static_cast<size_t>(dim_)], *this, "C2",
          "[", begin_, ", ", end_, ") of dim ", dim_, " of ", y);
  y.shape[static_cast<size_t>(dim_)] = end_ - begin_;
  return {y};
}

std::vector<Value> Slice::vjp(const VjpContext& context) const {
  int64_t size = context.graph.shape(context.node.inputs[0])[static_cast<size_t>(dim_)];
  return {context.graph.add_one(std::make_shared<Pad>(dim_, begin_, size - end_, 0.0),
                                {context.cotangents[0]})};
}

std::vector<TensorType> Pad::infer(const InferContext& context) const {
  TensorType y = context.inputs[0];
  require(dim_ >= 0 && dim_ < static_cast<int64_t>(y.shape.size()) && low_ >= 0 && high_ >= 0,
          *this, "C1", "dim ", dim_, " of ", y);
  y.shape[static_cast<size_t>(dim_)] += low_ + high_;
  return {y};
}

std::vector<Value> Pad::vjp(const VjpContext& context) const {
  int64_t size = context.graph.shape(context.node.inputs[0])[static_cast<size_t>(dim_)];
  return {slice(context.graph, context.cotangents[0], dim_, low_, low_ + size)};
}

std::vector<TensorType> Concatenate::infer(const InferContext& context) const {
  require(!context.inputs.empty(), *this, "C1", "at least one operand");
  TensorType y = context.inputs[0];
  require(dim_ >= 0 && dim_ < static_cast<int64_t>(y.shape.size()), *this, "C2", "dim ", dim_,
          " of ", y);
  y.shape[static_cast<size_t>(dim_)] = 0;
  for (const TensorType& x : context.inputs) {
    Shape rest = x.shape;
    if (rest.size() == y.shape.size())
      rest[static_cast<size_t>(dim_)] = y.shape[static_cast<size_t>(dim_)];
    require(rest == y.shape && x.dtype == y.dtype, *this, "C3", "operands must agree but for dim ",
            dim_, ": ", context.inputs[0], " and ", x);
    y.shape[static_cast<size_t>(dim_)] += x.shape[static_cast<size_t>(dim_)];
  }
  return {y};
}

std::vector<Value> Concatenate::vjp(const VjpContext& context) const {
  std::vector<Value> gradients;
  int64_t begin = 0;
  for (size_t i = 0; i < context.node.inputs.size(); ++i) {
    int64_t size = context.graph.shape(context.node.inputs[i])[static_cast<size_t>(dim_)];
    gradients.push_back(context.needed[i]
                            ? slice(context.graph, context.cotangents[0], dim_, begin, begin + size)
                            : Value{});
    begin += size;
  }
  return gradients;
}

std::vector<TensorType> Gather::infer(const InferContext& context) const {
  const TensorType &table = context.inputs[0], &ids = context.inputs[1];
  require(!table.shape.empty(), *this, "C1", "table must have rows, is ", table);
  require(ids.dtype == DType::kI32 || ids.dtype == DType::kI64, *this, "C2",
          "ids must be integers, are ", ids);
  TensorType y{ids.shape, table.dtype};
  y.shape.insert(y.shape.end(), table.shape.begin() + 1, table.shape.end());
  return {y};
}

std::vector<Value> Gather::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  const TensorType& table = g.type(context.node.inputs[0]);
  auto scatter = std::make_shared<ScatterAdd>(table.shape[0], table.dtype);
  return {g.add_one(scatter, {context.node.inputs[1], context.cotangents[0]}), Value{}};
}

std::vector<TensorType> ScatterAdd::infer(const InferContext& context) const {
  const TensorType &ids = context.inputs[0], &updates = context.inputs[1];
  require(ids.dtype == DType::kI32 || ids.dtype == DType::kI64, *this, "C1",
          "ids must be integers, are ", ids);
  require(updates.shape.size() >= ids.shape.size() &&
              std::equal(ids.shape.begin(), ids.shape.end(), updates.shape.begin()),
          *this, "C2", "updates ", updates, " must begin with the dims of ids ", ids);
  TensorType y{{rows_}, dtype_};
  y.shape.insert(y.shape.end(),
                 updates.shape.begin() + static_cast<std::ptrdiff_t>(ids.shape.size()),
                 updates.shape.end());
  return {y};
}

std::vector<Value> ScatterAdd::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value gathered =
      g.add_one(std::make_shared<Gather>(), {context.cotangents[0], context.node.inputs[0]});
  return {Value{}, convert(g, gathered, g.type(context.node.inputs[1]).dtype)};
}

Value constant(Graph& graph, const TensorType& type, double value) {
  return graph.add_one(std::make_shared<Constant>(type, value), {});
}
Value constant_like(Graph& graph, Value like, double value) {
  return constant(graph, {graph.type(like).shape, graph.type(like).dtype}, value);
}
Value iota(Graph& graph, const TensorType& type, int64_t dim) {
  return graph.add_one(std::make_shared<Iota>(type, dim), {});
}
Value reshape(Graph& graph, Value x, Shape shape) {
  if (graph.shape(x) == shape) return x;
  return graph.add_one(std::make_shared<Reshape>(std::move(shape)), {x});
}
Value transpose(Graph& graph, Value x, std::vector<int64_t> order) {
  return graph.add_one(std::make_shared<Transpose>(std::move(order)), {x});
}
Value broadcast(Graph& graph, Value x, Shape shape, std::vector<int64_t> dims) {
  return graph.add_one(std::make_shared<Broadcast>(std::move(shape), std::move(dims)), {x});
}
Value broadcast_trailing(Graph& graph, Value x, const Shape& shape) {
  std::vector<int64_t> dims(graph.shape(x).size());
  std::iota(dims.begin(), dims.end(), 0);
  return broadcast(graph, x, shape, std::move(dims));
}
Value broadcast_leading(Graph& graph, Value x, const Shape& shape) {
  std::vector<int64_t> dims(graph.shape(x).size());
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(shape.size() - dims.size()));
  return broadcast(graph, x, shape, std::move(dims));
}
Value slice(Graph& graph, Value x, int64_t dim, int64_t begin, int64_t end) {
  return graph.add_one(std::make_shared<Slice>(dim, begin, end), {x});
}
Value concatenate(Graph& graph, std::vector<Value> xs, int64_t dim) {
  return graph.add_one(std::make_shared<Concatenate>(dim), std::move(xs));
}

}  // namespace tessera
