#include "ops/composite/embedding.h"

#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

// bool [ids...]: the id is a row of the table.
Value in_table(Graph& g, Value ids, int64_t rows) {
  Value low = compare(g, Comparison::kGe, ids, constant_like(g, ids, 0));
  return binary(g, BinaryKind::kAnd, low,
                compare(g, Comparison::kLt, ids, constant_like(g, ids, static_cast<double>(rows))));
}

// Rows of x [ids..., D] outside the table become zeros.
Value only_in_table(Graph& g, Value x, Value inside) {
  return select(g, broadcast_trailing(g, inside, g.shape(x)), x, constant_like(g, x, 0));
}

}  // namespace

std::vector<TensorType> Embedding::infer(const InferContext& context) const {
  const TensorType &ids = context.inputs[0], &table = context.inputs[1];
  require(ids.dtype == DType::kI32, *this, "C1", "ids must be i32, are ", ids);
  require(table.shape.size() == 2 && is_float(table.dtype), *this, "C2",
          "table must have shape [V, D], is ", table);
  TensorType y{ids.shape, table.dtype};
  y.shape.push_back(table.shape[1]);
  return {y};
}

std::vector<Value> Embedding::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value ids = context.node.inputs[0], table = context.node.inputs[1];
  DType dtype = g.type(table).dtype;
  Value dy = convert(g, context.cotangents[0], dtype);
  auto op = std::make_shared<EmbeddingBackward>(g.shape(table)[0], partial_);
  return {Value{}, context.add(1, wide(dtype), op, {ids, dy})[0]};
}

void Embedding::split(PlacementContext& context) const {
  Placement table = context.placement(1);
  if (!table.split_on(0)) return Op::split(context);
  Graph& g = context.graph();
  Value ids = context.replicated(0), rows = context.operand(1);
  Value begin = part_begin(g, table.axes, g.shape(rows)[0]);
  ids = sub(g, ids, broadcast(g, begin, g.shape(ids), {}));
  context.put(0, g.add_one(std::make_shared<Embedding>(true), {ids, rows}),
              {Placement::Kind::kPartial, 0, table.axes});
}

std::vector<Value> Embedding::decompose(Graph& graph, std::span<const Value> inputs) const {
  Value ids = inputs[0], table = inputs[1];
  if (!partial_) return {graph.add_one(std::make_shared<Gather>(), {table, ids})};
  Value inside = in_table(graph, ids, graph.shape(table)[0]);
  ids = select(graph, inside, ids, constant_like(graph, ids, 0));
  return {only_in_table(graph, graph.add_one(std::make_shared<Gather>(), {table, ids}), inside)};
}

Cost Embedding::cost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs) const {
  return {0, static_cast<double>(inputs[0].bytes() + 2 * outputs[0].bytes())};
}

std::vector<TensorType> EmbeddingBackward::infer(const InferContext& context) const {
  const TensorType &ids = context.inputs[0], &dy = context.inputs[1];
  Shape expected = ids.shape;
  expected.push_back(dy.shape.empty() ? 0 : dy.shape.back());
  require(ids.dtype == DType::kI32 && dy.shape == expected, *this, "C1",
          "dy must be [ids..., D]: ids ", ids, ", dy ", dy);
  TensorType dtable{{rows_, dy.shape.back()}, wide(dy.dtype)};
  if (adds_) require_sum(*this, "C2", context.inputs[2], dtable);
  return {dtable};
}

OpPtr EmbeddingBackward::adding(int) const {
  return std::make_shared<EmbeddingBackward>(rows_, partial_, true);
}

std::vector<InPlacePair> EmbeddingBackward::in_place_pairs() const {
  return adds_ ? std::vector{InPlacePair{2, 0}} : std::vector<InPlacePair>{};
}

std::vector<Value> EmbeddingBackward::decompose(Graph& graph, std::span<const Value> inputs) const {
  Value ids = inputs[0], dy = inputs[1];
  if (partial_) {
    Value inside = in_table(graph, ids, rows_);
    ids = select(graph, inside, ids, constant_like(graph, ids, 0));
    dy = only_in_table(graph, dy, inside);
  }
  Value dtable =
      graph.add_one(std::make_shared<ScatterAdd>(rows_, wide(graph.type(dy).dtype)), {ids, dy});
  return {adds_ ? tessera::add(graph, inputs[2], dtable) : dtable};
}

Cost EmbeddingBackward::cost(std::span<const TensorType> inputs,
                             std::span<const TensorType> outputs) const {
  if (!adds_) return Op::cost(inputs, outputs);
  const int64_t rows = inputs[1].elements() * size_of(outputs[0].dtype);
  return {static_cast<double>(inputs[1].elements()),
          static_cast<double>(inputs[0].bytes() + inputs[1].bytes() + 2 * rows)};
}

Value embedding(Graph& graph, Value ids, Value table) {
  return graph.add_one(std::make_shared<Embedding>(), {ids, table});
}

}  // namespace tessera
