#pragma once
#include "ir/graph.h"

namespace tessera {

// y[..., D] = table[ids[...], D]. Ids are i32 in [0, V).
class Embedding final : public OpOf<Embedding> {
 public:
  std::string_view name() const override { return "embedding"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (ids, table)
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

// dtable[V, D] = sum of dy over the tokens that hold each id, in ascending order of tokens, in f32.
class EmbeddingBackward final : public OpOf<EmbeddingBackward> {
 public:
  explicit EmbeddingBackward(int64_t rows) : rows_(rows) {}
  int64_t rows() const { return rows_; }
  std::string_view name() const override { return "embedding_backward"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (ids, dy)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  auto fields() const { return std::make_tuple(field("rows", rows_)); }

 private:
  int64_t rows_;
};

Value embedding(Graph& graph, Value ids, Value table);

}  // namespace tessera
