#pragma once
#include "ir/graph.h"
#include "ir/marks.h"

namespace tessera {

// Sum or maximum over `dims` (ascending), which disappear. Accumulated in ascending order, in f32
// for bf16 operands, rounded once. The maximum has no gradient: where it appears (inside a softmax)
// it is a constant.
class Reduce final : public OpOf<Reduce> {
 public:
  Reduce(Reduction reduction, std::vector<int64_t> dims)
      : reduction_(reduction), dims_(std::move(dims)) {}
  Reduction reduction() const { return reduction_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  std::string_view name() const override {
    return reduction_ == Reduction::kSum ? "reduce_sum" : "reduce_max";
  }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return reduction_ == Reduction::kSum; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("dims", dims_)); }

 private:
  Reduction reduction_;
  std::vector<int64_t> dims_;
};

// StableHLO's dot_general: batch dims first, then the free dims of a, then those of b; the
// contracted dims (one of each operand) disappear. Accumulated in f32 (f64 for f64), rounded once
// to `out`.
class Dot final : public OpOf<Dot> {
 public:
  // batch: the first `batch` dims of both operands. contract_a, contract_b: dim numbers.
  Dot(int64_t batch, int64_t contract_a, int64_t contract_b, DType out)
      : batch_(batch), contract_a_(contract_a), contract_b_(contract_b), out_(out) {}
  int64_t batch() const { return batch_; }
  int64_t contract_a() const { return contract_a_; }
  int64_t contract_b() const { return contract_b_; }
  std::string_view name() const override { return "dot"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 2; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("batch", batch_), field("contract_a", contract_a_),
                           field("contract_b", contract_b_), field("out", out_));
  }

 private:
  int64_t batch_, contract_a_, contract_b_;
  DType out_;
};

Value reduce_sum(Graph& graph, Value x, std::vector<int64_t> dims);
Value reduce_max(Graph& graph, Value x, std::vector<int64_t> dims);
Value dot(Graph& graph, Value a, Value b, int64_t batch, int64_t contract_a, int64_t contract_b,
          DType out);

}  // namespace tessera
