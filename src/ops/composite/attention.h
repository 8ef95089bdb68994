#pragma once
#include "ir/placement.h"

namespace tessera {

// Which keys u a query t may see: causal: u <= t; window W > 0 (causal only): also t - u < W.
struct AttentionMask {
  bool causal = true;
  int64_t window = 0;
};

// Scaled dot-product attention with grouped queries:
//   o = softmax(scale * q k^T + mask) v; head h reads key/value head h / (H / Hk).
// q [B, T, H, D]; k, v [B, T, Hk, D], H divisible by Hk. Outputs o like q, and lse [B, H, T], the
// log-sum-exp of the scaled, masked scores in f32 (f64 for f64): all that the gradient needs of
// them.
class Attention final : public OpOf<Attention> {
 public:
  Attention(double scale, AttentionMask mask) : scale_(scale), mask_(mask) {}
  double scale() const { return scale_; }
  AttentionMask mask() const { return mask_; }
  std::string_view name() const override { return "attention"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 3; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (q, k, v)
  // Split by heads; key/value heads over fewer axes where ranks share one.
  void split(PlacementContext& context) const override;
  // Keys and values are kept; causal attention only.
  std::vector<Value> continue_sequence(Continuation& continuation) const override;
  bool differentiable() const override { return true; }
  bool contracts() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("scale", scale_), field("causal", mask_.causal),
                           field("window", mask_.window));
  }

 private:
  double scale_;
  AttentionMask mask_;
};

// With p = exp(scale * q k^T - lse) and delta = rowsum(o * do):
//   dv = p^T do,  ds = p * (do v^T - delta) * scale,  dq = ds k,  dk = ds^T q  (Dao 2023, algorithm
//   2).
class AttentionBackward final : public OpOf<AttentionBackward> {
 public:
  AttentionBackward(double scale, AttentionMask mask) : scale_(scale), mask_(mask) {}
  double scale() const { return scale_; }
  AttentionMask mask() const { return mask_; }
  std::string_view name() const override { return "attention_backward"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 6; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (q, k, v, o, lse, do)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("scale", scale_), field("causal", mask_.causal),
                           field("window", mask_.window));
  }

 private:
  double scale_;
  AttentionMask mask_;
};

// Attention of tokens that continue a sequence: query t [B, n, H, D] is token start + t of it and
// reads the keys and values of all tokens so far, its own included, from caches [B, C, Hk, D]:
//   o_t = softmax(scale * q_t k_u^T, u <= start + t, start + t - u < window if > 0) v.
// start i32 [], at least 0 and at most C - n. What lies behind token start + n is not read.
class CachedAttention final : public OpOf<CachedAttention> {
 public:
  CachedAttention(double scale, int64_t window) : scale_(scale), window_(window) {}
  double scale() const { return scale_; }
  int64_t window() const { return window_; }
  std::string_view name() const override { return "cached_attention"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 4; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (q, k, v, start)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  // As if the caches were full.
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("scale", scale_), field("window", window_)); }

 private:
  double scale_;
  int64_t window_;
};

Value attention(Graph& graph, Value q, Value k, Value v, double scale, AttentionMask mask);

}  // namespace tessera
