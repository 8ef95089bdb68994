#include "ops/composite/embedding.h"

#include "ops/composite/linear.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> Embedding::infer(const InferContext& context) const {
  const TensorType &ids = context.inputs[0], &table = context.inputs[1];
  require(ids.dtype == DType::kI32, *this, "C1", cat("ids must be i32, are ", to_string(ids)));
  require(table.shape.size() == 2 && is_float(table.dtype), *this, "C2",
          cat("table must have shape [V, D], is ", to_string(table)));
  TensorType y{ids.shape, table.dtype};
  y.shape.push_back(table.shape[1]);
  return {y};
}

std::vector<Value> Embedding::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value ids = context.node.inputs[0], table = context.node.inputs[1];
  Value dy = convert(g, context.cotangents[0], g.type(table).dtype);
  return {Value{}, g.add_one(std::make_shared<EmbeddingBackward>(g.shape(table)[0]), {ids, dy})};
}

std::vector<Value> Embedding::decompose(Graph& graph, std::span<const Value> inputs) const {
  return {graph.add_one(std::make_shared<Gather>(), {inputs[1], inputs[0]})};
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
          cat("dy must be [ids..., D]: ids ", to_string(ids), ", dy ", to_string(dy)));
  return {{{rows_, dy.shape.back()}, wide(dy.dtype)}};
}

std::vector<Value> EmbeddingBackward::decompose(Graph& graph, std::span<const Value> inputs) const {
  return {graph.add_one(std::make_shared<ScatterAdd>(rows_, wide(graph.type(inputs[1]).dtype)),
                        {inputs[0], inputs[1]})};
}

Value embedding(Graph& graph, Value ids, Value table) {
  return graph.add_one(std::make_shared<Embedding>(), {ids, table});
}

}  // namespace tessera
