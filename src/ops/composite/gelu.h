#pragma once
#include "ir/placement.h"

namespace tessera {

// Which of the two functions of Hendrycks and Gimpel 2016 (section 2) is meant:
//   kExact  x * Phi(x) = x / 2 * (1 + erf(x / sqrt(2)))
//   kTanh   x / 2 * (1 + tanh(u)),  u = sqrt(2 / pi) * (x + 0.044715 x^3): GPT-2's own
// They differ by up to 5e-4.
enum class GeluKind { kExact, kTanh };
std::string_view name(GeluKind kind);

// y = gelu(x), x a float of any shape. Computed in f32 (f64 for f64), rounded once.
class Gelu final : public OpOf<Gelu> {
 public:
  explicit Gelu(GeluKind kind) : kind_(kind) {}
  GeluKind kind() const { return kind_; }
  std::string_view name() const override { return "gelu"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x)
  void split(PlacementContext& context) const override { split_elementwise(context); }
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const { return std::make_tuple(field("kind", tessera::name(kind_))); }

 private:
  GeluKind kind_;
};

// dx = dy * gelu'(x):
//   kExact  Phi(x) + x phi(x),  phi(x) = e^(-x^2 / 2) / sqrt(2 pi)
//   kTanh   (1 + t) / 2 + x / 2 * (1 - t^2) * u',  t = tanh(u)
class GeluBackward final : public OpOf<GeluBackward> {
 public:
  explicit GeluBackward(GeluKind kind) : kind_(kind) {}
  GeluKind kind() const { return kind_; }
  std::string_view name() const override { return "gelu_backward"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, dy)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 0}}; }
  auto fields() const { return std::make_tuple(field("kind", tessera::name(kind_))); }

 private:
  GeluKind kind_;
};

Value gelu(Graph& graph, Value x, GeluKind kind);

}  // namespace tessera
