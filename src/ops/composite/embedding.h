#pragma once
#include "ir/placement.h"

namespace tessera {

// y[..., D] = table[ids[...], D]. Ids are i32 in [0, V); with `partial` the table is one rank's
// part of a larger one: ids outside [0, V) give zeros and have no gradient here.
class Embedding final : public OpOf<Embedding> {
 public:
  explicit Embedding(bool partial = false) : partial_(partial) {}
  bool partial() const { return partial_; }
  std::string_view name() const override { return "embedding"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (ids, table)
  // Table split along V: every rank looks up what it has, a summand of y.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("partial", partial_)); }

 private:
  bool partial_;
};

// dtable[V, D] = sum of dy over the tokens that hold each id, in ascending order of tokens, in f32.
// With `adds` plus the third operand, of which only rows of these ids change.
class EmbeddingBackward final : public OpOf<EmbeddingBackward> {
 public:
  explicit EmbeddingBackward(int64_t rows, bool partial = false, bool adds = false)
      : rows_(rows), partial_(partial), adds_(adds) {}
  int64_t rows() const { return rows_; }
  bool partial() const { return partial_; }
  bool adds() const { return adds_; }
  std::string_view name() const override {
    return adds_ ? "embedding_backward_add" : "embedding_backward";
  }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return adds_ ? 3 : 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (ids, dy[, sum])
  OpPtr adding(int output) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("rows", rows_), field("partial", partial_)); }

 private:
  int64_t rows_;
  bool partial_, adds_;
};

Value embedding(Graph& graph, Value ids, Value table);

}  // namespace tessera
