#pragma once
#include "ir/placement.h"

namespace tessera {

// Rotary position embedding (Su et al. 2021, equation 34) over halves of a head: with R = 2 *
// frequencies.size() <= D rotary dims, element i < R/2 of token t pairs with i + R/2:
//   y_i = x_i cos(t f_i) - x_{i+R/2} sin(t f_i),   y_{i+R/2} = x_{i+R/2} cos(t f_i) + x_i sin(t
//   f_i);
// elements from R on are copied. x [B, T, H, D]. `inverse` turns by the negative angle, which is
// the gradient. Angles and products in f32, rounded once.
class Rope final : public OpOf<Rope> {
 public:
  Rope(std::vector<double> frequencies, bool inverse)
      : frequencies_(std::move(frequencies)), inverse_(inverse) {}
  const std::vector<double>& frequencies() const { return frequencies_; }
  bool inverse() const { return inverse_; }
  std::string_view name() const override { return "rope"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x)
  // Heads may be split, positions not.
  void split(PlacementContext& context) const override;
  std::vector<Value> continue_sequence(Continuation& continuation) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const {
    return std::make_tuple(field("frequencies", frequencies_), field("inverse", inverse_));
  }

 private:
  std::vector<double> frequencies_;
  bool inverse_;
};

// The same where the first token is number `start` (i32 []) of its sequence: t counts from there.
// `positions` bounds start + T.
class RopeAt final : public OpOf<RopeAt> {
 public:
  RopeAt(std::vector<double> frequencies, int64_t positions)
      : frequencies_(std::move(frequencies)), positions_(positions) {}
  const std::vector<double>& frequencies() const { return frequencies_; }
  int64_t positions() const { return positions_; }
  std::string_view name() const override { return "rope_at"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, start)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const {
    return std::make_tuple(field("frequencies", frequencies_), field("positions", positions_));
  }

 private:
  std::vector<double> frequencies_;
  int64_t positions_;
};

Value rope(Graph& graph, Value x, const std::vector<double>& frequencies);

}  // namespace tessera
