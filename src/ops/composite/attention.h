#pragma once
#include <string>

#include "ir/placement.h"

namespace tessera {

// Which keys u a query t of row b may see: causal: u <= t; window W > 0 (causal only): also
// t - u < W; documents (causal only): also u >= document_starts[b, t], an operand. So queries see
// keys of their own document only where a row holds several one behind the other.
struct AttentionMask {
  bool causal = true;
  int64_t window = 0;
  bool documents = false;
  // Operands behind q, k, v (of the gradient: behind do): document_starts i32 [B, T], of each token
  // the place of the first of its document. It does not decrease along a row.
  int operands() const { return documents ? 1 : 0; }
};

// Dropout of the probabilities, see composite/dropout.h; p = 0: none, and no operand of it. Head h
// of the op is head first_head + h of the model where the heads are `part` of its heads. Key u and
// query t have element u % 2 * 64 + t % 64 of block [head, u / 2, t / 64] of random_bits [B, H,
// ceil(T / 2), ceil(T / 64), kRandomBlock]: kernels make the bits of 64 x 64 pairs block by block.
struct AttentionDropout {
  double p = 0;
  std::string stream;
  bool part = false;
  // Operands behind those of attention without dropout: row_keys i64 [B], then, of a part,
  // first_head, an i32 scalar.
  int operands() const { return p == 0 ? 0 : part ? 2 : 1; }
};

// Scaled dot-product attention with grouped queries:
//   o = dropout(softmax(scale * q k^T + mask)) v; head h reads key/value head h / (H / Hk).
// q [B, T, H, D]; k, v [B, T, Hk, D], H divisible by Hk. Outputs o like q, and lse [B, H, T], the
// log-sum-exp of the scaled, masked scores in f32 (f64 for f64): all that the gradient needs of
// them.
class Attention final : public OpOf<Attention> {
 public:
  Attention(double scale, AttentionMask mask, AttentionDropout dropout = {})
      : scale_(scale), mask_(mask), dropout_(std::move(dropout)) {}
  double scale() const { return scale_; }
  AttentionMask mask() const { return mask_; }
  const AttentionDropout& dropout() const { return dropout_; }
  std::string_view name() const override { return "attention"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 3 + mask_.operands() + dropout_.operands(); }
  std::vector<TensorType> infer(const InferContext& context)
      const override;  // (q, k, v[, document_starts][, row_keys[, first_head]])
  // Split by heads; key/value heads over fewer axes where ranks share one.
  void split(PlacementContext& context) const override;
  // Keys and values are kept; causal attention only.
  std::vector<Value> continue_sequence(Continuation& continuation) const override;
  // Causal attention only.
  std::vector<Value> restart_at_documents(DocumentContext& context) const override;
  bool differentiable() const override { return true; }
  bool contracts() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  // As if every row were one document: how long they are is known to the data only.
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("scale", scale_), field("causal", mask_.causal),
                           field("window", mask_.window), field("documents", mask_.documents),
                           field("dropout", dropout_.p), field("stream", dropout_.stream),
                           field("part", dropout_.part));
  }

 private:
  double scale_;
  AttentionMask mask_;
  AttentionDropout dropout_;
};

// With p = exp(scale * q k^T - lse) and delta = rowsum(o * do):
//   dv = p^T do,  ds = p * (do v^T - delta) * scale,  dq = ds k,  dk = ds^T q  (Dao 2023, algorithm
//   2). Dropout applies to p in dv and to do v^T: it is the same mask, made again.
class AttentionBackward final : public OpOf<AttentionBackward> {
 public:
  AttentionBackward(double scale, AttentionMask mask, AttentionDropout dropout = {})
      : scale_(scale), mask_(mask), dropout_(std::move(dropout)) {}
  double scale() const { return scale_; }
  AttentionMask mask() const { return mask_; }
  const AttentionDropout& dropout() const { return dropout_; }
  std::string_view name() const override { return "attention_backward"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 6 + mask_.operands() + dropout_.operands(); }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context)
      const override;  // (q, k, v, o, lse, do[, document_starts][, row_keys[, first_head]])
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("scale", scale_), field("causal", mask_.causal),
                           field("window", mask_.window), field("documents", mask_.documents),
                           field("dropout", dropout_.p), field("stream", dropout_.stream),
                           field("part", dropout_.part));
  }

 private:
  double scale_;
  AttentionMask mask_;
  AttentionDropout dropout_;
};

// Attention of tokens that continue sequences: query t of q [B, n, H, D] is token start + t of its
// own and reads the keys and values of all tokens so far, its own included, from that sequence's
// row of the caches [R, C, Hk, D]:
//   o_t = softmax(scale * q_t k_u^T, u <= start + t, start + t - u < window if > 0) v.
// start and row i32 [B]; start is at least 0 and at most C - n. What lies behind token start + n is
// not read.
class CachedAttention final : public OpOf<CachedAttention> {
 public:
  CachedAttention(double scale, int64_t window) : scale_(scale), window_(window) {}
  double scale() const { return scale_; }
  int64_t window() const { return window_; }
  std::string_view name() const override { return "cached_attention"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 5; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (q, k, v, start, row)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  // As if the caches were full.
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("scale", scale_), field("window", window_)); }

 private:
  double scale_;
  int64_t window_;
};

// Documents are the business of a pass: passes/document_mask.h.
Value attention(Graph& graph, Value q, Value k, Value v, double scale, AttentionMask mask);
// With dropout of the probabilities; p = 0 is the above.
Value attention(Graph& graph, Value q, Value k, Value v, double scale, AttentionMask mask,
                Value row_keys, double p, std::string stream);

}  // namespace tessera
