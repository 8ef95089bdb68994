#pragma once
#include "ir/placement.h"

namespace tessera {

// Elementwise primitives: operands of one shape and dtype. The computation rounds once to the
// dtype.

enum class UnaryKind {
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kLogistic,
  kErf,
  kSin,
  kCos,
  kAbs,
  kIsFinite,
  kNot
};

// y = f(x). `is_finite` gives bool from a float, `not` bool from bool, the others keep the float
// dtype. erf is the rational approximation 7.1.26 of Abramowitz and Stegun on every backend
// (|error| < 1.5e-7), but the exact function in f64.
class Unary final : public OpOf<Unary> {
 public:
  explicit Unary(UnaryKind kind) : kind_(kind) {}
  UnaryKind kind() const { return kind_; }
  std::string_view name() const override;
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  void split(PlacementContext& context) const override { split_elementwise(context); }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override {
    return kind_ != UnaryKind::kIsFinite && kind_ != UnaryKind::kNot;
  }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  auto fields() const { return std::make_tuple(); }

 private:
  UnaryKind kind_;
};

enum class BinaryKind { kAdd, kSub, kMul, kDiv, kMax, kMin, kPow, kAnd, kOr };

// y = a op b. add, sub, mul, div, max, min also on integers; pow on floats; and, or on bool.
class Binary final : public OpOf<Binary> {
 public:
  explicit Binary(BinaryKind kind) : kind_(kind) {}
  BinaryKind kind() const { return kind_; }
  std::string_view name() const override;
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 2; }
  void split(PlacementContext& context) const override { split_elementwise(context); }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return kind_ < BinaryKind::kAnd; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 0}}; }
  auto fields() const { return std::make_tuple(); }

 private:
  BinaryKind kind_;
};

enum class Comparison { kEq, kNe, kLt, kLe, kGt, kGe };
std::string_view name(Comparison comparison);

// bool = a ? b; a comparison with NaN is false, except `ne`.
class Compare final : public OpOf<Compare> {
 public:
  explicit Compare(Comparison comparison) : comparison_(comparison) {}
  Comparison comparison() const { return comparison_; }
  std::string_view name() const override { return "compare"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 2; }
  void split(PlacementContext& context) const override { split_elementwise(context); }
  std::vector<TensorType> infer(const InferContext& context) const override;
  auto fields() const { return std::make_tuple(field("comparison", tessera::name(comparison_))); }

 private:
  Comparison comparison_;
};

// y = predicate ? a : b. The branch not taken never matters, not even when it is NaN.
class Select final : public OpOf<Select> {
 public:
  std::string_view name() const override { return "select"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 3; }
  void split(PlacementContext& context) const override { split_elementwise(context); }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{1, 0}, {2, 0}}; }
  auto fields() const { return std::make_tuple(); }
};

// y = x in another dtype, rounded to nearest even; to integers: toward zero. Its gradient is f32
// for an f32 input whatever the cotangent's dtype: precision is never lost by implication.
class Convert final : public OpOf<Convert> {
 public:
  explicit Convert(DType to) : to_(to) {}
  DType to() const { return to_; }
  std::string_view name() const override { return "convert"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  void split(PlacementContext& context) const override { split_elementwise(context); }
  std::vector<TensorType> infer(const InferContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  auto fields() const { return std::make_tuple(field("to", to_)); }

 private:
  DType to_;
};

// y = x, but nothing flows back.
class StopGradient final : public OpOf<StopGradient> {
 public:
  std::string_view name() const override { return "stop_gradient"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  void split(PlacementContext& context) const override { split_elementwise(context); }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0]};
  }
  std::vector<int64_t> view_offsets() const override { return {0}; }
  auto fields() const { return std::make_tuple(); }
};

// Short spellings for decompositions and gradients.
Value unary(Graph& graph, UnaryKind kind, Value x);
Value binary(Graph& graph, BinaryKind kind, Value a, Value b);
Value compare(Graph& graph, Comparison comparison, Value a, Value b);
Value select(Graph& graph, Value predicate, Value a, Value b);
Value convert(Graph& graph, Value x, DType to);  // the same value if it has that dtype
inline Value add(Graph& graph, Value a, Value b) { return binary(graph, BinaryKind::kAdd, a, b); }
inline Value sub(Graph& graph, Value a, Value b) { return binary(graph, BinaryKind::kSub, a, b); }
inline Value mul(Graph& graph, Value a, Value b) { return binary(graph, BinaryKind::kMul, a, b); }
inline Value div(Graph& graph, Value a, Value b) { return binary(graph, BinaryKind::kDiv, a, b); }

}  // namespace tessera
