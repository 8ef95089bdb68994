#pragma once
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// The ops that change a value's marks without changing its shape. vary and all_reduce are each
// other's gradient, and the graph itself inserts the first: hence they live here and not with the
// other collectives.

// Replicated to varying over `axes`. No bytes move: the output is a view. Gradient: all_reduce.
class VaryOp final : public OpOf<VaryOp> {
 public:
  explicit VaryOp(AxisSet axes) : axes_(axes) {}
  AxisSet axes() const { return axes_; }
  std::string_view name() const override { return "vary"; }
  Tier tier() const override { return Tier::kCollective; }
  int arity() const override { return 1; }
  bool sets_marks() const override { return true; }
  bool differentiable() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<int64_t> view_offsets() const override { return {0}; }
  auto fields() const { return std::make_tuple(field("axes", axes_)); }

 private:
  AxisSet axes_;
};

// Varying to replicated over `axes`, of what is equal on all ranks along them although its type
// does not say so: a slot has one type in all programs, and one of them may know more. No bytes
// move: the output is a view. A promise that only a lockstep run holds against the bits.
class AsReplicatedOp final : public OpOf<AsReplicatedOp> {
 public:
  explicit AsReplicatedOp(AxisSet axes) : axes_(axes) {}
  std::string_view name() const override { return "as_replicated"; }
  Tier tier() const override { return Tier::kCollective; }
  int arity() const override { return 1; }
  bool sets_marks() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<int64_t> view_offsets() const override { return {0}; }
  auto fields() const { return std::make_tuple(field("axes", axes_)); }

 private:
  AxisSet axes_;
};

enum class Reduction { kSum, kMax };

// Varying to replicated over `axes`: sum in rank order in f32 (f64 for f64), rounded once; or
// maximum, which has no gradient. Gradient of the sum: vary.
class AllReduceOp final : public OpOf<AllReduceOp> {
 public:
  AllReduceOp(AxisSet axes, Reduction reduction) : axes_(axes), reduction_(reduction) {}
  AxisSet axes() const { return axes_; }
  Reduction reduction() const { return reduction_; }
  std::string_view name() const override { return "all_reduce"; }
  Tier tier() const override { return Tier::kCollective; }
  int arity() const override { return 1; }
  bool sets_marks() const override { return true; }
  std::optional<Communication> communication() const override {
    return Communication{Traffic::kAllReduce, axes_};
  }
  bool differentiable() const override { return reduction_ == Reduction::kSum; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const {
    return std::make_tuple(
        field("axes", axes_),
        field("reduction", std::string_view(reduction_ == Reduction::kSum ? "sum" : "max")));
  }

 private:
  AxisSet axes_;
  Reduction reduction_;
};

// The value with exactly these axes varying in addition (the same value if it varies already).
Value vary(Graph& graph, Value value, AxisSet axes);
// The sum over the axes on which the value varies (the same value if there are none).
Value sum_over_marks(Graph& graph, Value value);

}  // namespace tessera
