#pragma once
#include "ir/placement.h"

namespace tessera {

// Which angles a head turns by: the frequencies f_i in radians a position, and a factor of all
// cosines and sines, by which YaRN makes the scores of queries and keys larger.
struct RotaryAngles {
  std::vector<double> frequencies;
  double scale;
  RotaryAngles(std::vector<double> f, double factor = 1)
      : frequencies(std::move(f)), scale(factor) {}
};

// Rotary position embedding (Su et al. 2021, equation 34) over halves of a head: with R = 2 *
// frequencies.size() <= D rotary dims, element i < R/2 of token t pairs with i + R/2:
//   y_i = x_i c - x_{i+R/2} s,   y_{i+R/2} = x_{i+R/2} c + x_i s,
//   c = scale * cos(t f_i),  s = scale * sin(t f_i);
// elements from R on are copied. x [B, T, H, D]. `inverse` turns by the negative angle, which is
// the gradient. Angles and products in f32, rounded once. With `documents` a row b holds several
// and t counts from document_starts[b, t], an i32 operand [B, T] as attention's.
class Rope final : public OpOf<Rope> {
 public:
  Rope(RotaryAngles rotary, bool inverse, bool documents = false)
      : rotary_(std::move(rotary)), inverse_(inverse), documents_(documents) {}
  const RotaryAngles& rotary() const { return rotary_; }
  bool inverse() const { return inverse_; }
  bool documents() const { return documents_; }
  std::string_view name() const override { return "rope"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return documents_ ? 2 : 1; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (x[, document_starts])
  // Heads may be split, positions not.
  void split(PlacementContext& context) const override;
  std::vector<Value> continue_sequence(Continuation& continuation) const override;
  std::vector<Value> restart_at_documents(DocumentContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const {
    return std::make_tuple(field("frequencies", rotary_.frequencies), field("scale", rotary_.scale),
                           field("inverse", inverse_), field("documents", documents_));
  }

 private:
  RotaryAngles rotary_;
  bool inverse_, documents_;
};

// The same where the first tokens are number `start` (i32 [B]) of their sequences: t counts from
// there. `positions` bounds start + T.
class RopeAt final : public OpOf<RopeAt> {
 public:
  RopeAt(RotaryAngles rotary, int64_t positions)
      : rotary_(std::move(rotary)), positions_(positions) {}
  const RotaryAngles& rotary() const { return rotary_; }
  int64_t positions() const { return positions_; }
  std::string_view name() const override { return "rope_at"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, start)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const {
    return std::make_tuple(field("frequencies", rotary_.frequencies), field("scale", rotary_.scale),
                           field("positions", positions_));
  }

 private:
  RotaryAngles rotary_;
  int64_t positions_;
};

Value rope(Graph& graph, Value x, const RotaryAngles& rotary);

}  // namespace tessera
