#include "models/llama.h"

#include <cmath>

#include "nn/rotary.h"
#include "ops/composite/attention.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/embedding.h"
#include "ops/composite/linear.h"
#include "ops/composite/rms_norm.h"
#include "ops/composite/rope.h"
#include "ops/composite/swiglu.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

std::vector<double> frequencies_of(const ModelConfig& c) {
  std::vector<double> f = rotary_frequencies(c.head_dim, c.rope_theta);
  if (c.rope_scaling.type != RopeScalingType::kLlama3) return f;
  const RopeScaling& s = c.rope_scaling;
  return scale_llama3(std::move(f), {s.factor, s.low_freq_factor, s.high_freq_factor,
                                     static_cast<double>(s.original_max_position)});
}

Value attention_block(ModelGraph& m, const ModelConfig& c, const std::string& layer, Value x) {
  Graph& g = m.graph;
  Scope scope(g, "attn");
  ParameterScope p(m, cat("model.", layer, ".self_attn"), layer);
  int64_t B = g.shape(x)[0], T = g.shape(x)[1], E = c.hidden_width;
  int64_t H = c.num_heads, K = c.num_key_value_heads, D = c.head_dim;
  Value q = linear(
      g, x, p.matrix("q_proj", H * D, E, {"heads", "embed"}, c.initializer_range));  // [B, T, H*D]
  Value k = linear(
      g, x,
      p.matrix("k_proj", K * D, E, {"kv_heads", "embed"}, c.initializer_range));  // [B, T, K*D]
  Value v = linear(
      g, x,
      p.matrix("v_proj", K * D, E, {"kv_heads", "embed"}, c.initializer_range));  // [B, T, K*D]
  std::vector<double> frequencies = frequencies_of(c);
  q = rope(g, reshape(g, q, {B, T, H, D}), frequencies);  // [B, T, H, D]
  k = rope(g, reshape(g, k, {B, T, K, D}), frequencies);  // [B, T, K, D]
  v = reshape(g, v, {B, T, K, D});                        // [B, T, K, D]
  double scale = 1 / std::sqrt(static_cast<double>(D));
  Value o = attention(g, q, k, v, scale, {true, c.sliding_window.value_or(0)});  // [B, T, H, D]
  o = reshape(g, o, {B, T, H * D});                                              // [B, T, H*D]
  return linear(
      g, o, p.matrix("o_proj", E, H * D, {"embed", "heads"}, c.initializer_range));  // [B, T, E]
}

Value mlp_block(ModelGraph& m, const ModelConfig& c, const std::string& layer, Value x) {
  Graph& g = m.graph;
  Scope scope(g, "mlp");
  ParameterScope p(m, cat("model.", layer, ".mlp"), layer);
  int64_t E = c.hidden_width, F = c.intermediate_size;
  Value gate = linear(
      g, x, p.matrix("gate_proj", F, E, {"mlp", "embed"}, c.initializer_range));  // [B, T, F]
  Value up =
      linear(g, x, p.matrix("up_proj", F, E, {"mlp", "embed"}, c.initializer_range));  // [B, T, F]
  Value y = swiglu(g, gate, up);                                                       // [B, T, F]
  return linear(g, y,
                p.matrix("down_proj", E, F, {"embed", "mlp"}, c.initializer_range));  // [B, T, E]
}

Value norm(ModelGraph& m, const ModelConfig& c, const ParameterScope& p, const std::string& name,
           Value x) {
  Scope scope(m.graph, name);
  return rms_norm(m.graph, x, p.norm_weight(name, c.hidden_width), c.norm_epsilon);  // [B, T, E]
}

void finish(ModelGraph& m, ModelHead head, Value x, Value w) {
  Graph& g = m.graph;
  Scope scope(g, "head");
  int64_t B = g.shape(x)[0], T = g.shape(x)[1];
  x = reshape(g, x, {B * T, g.shape(x)[2]});  // [B*T, E]
  if (head == ModelHead::kLoss) {
    Value targets =
        reshape(g, g.input("targets", InputKind::kArgument, {{B, T}, DType::kI32}), {B * T});
    g.output("loss_sum", linear_cross_entropy(g, x, w, targets));  // []
    g.output("token_count", count_targets(g, targets));            // []
    return;
  }
  if (head == ModelHead::kNext) {
    Value position = g.input("position", InputKind::kArgument, {{1}, DType::kI32});
    x = g.add_one(std::make_shared<Gather>(), {x, position});  // [1, E]
  }
  g.output("logits", linear(g, x, w));  // [rows, V]
}

}  // namespace

ModelGraph llama(const ModelConfig& c, int64_t batch, int64_t length, ModelHead head) {
  ModelGraph m;
  Graph& g = m.graph;
  Value tokens = g.input("tokens", InputKind::kArgument, {{batch, length}, DType::kI32});
  Value table, x;
  {
    Scope scope(g, "embed");
    table = ParameterScope(m, "model", "embed")
                .matrix("embed_tokens", c.vocab_size, c.hidden_width, {"vocab", "embed"},
                        c.initializer_range);
    x = embedding(g, tokens, table);  // [B, T, E]
  }
  for (int64_t l = 0; l < c.num_layers; ++l) {
    std::string layer = cat("layers.", l);
    Scope scope(g, layer);
    ParameterScope p(m, cat("model.", layer), layer);
    x = add(g, x, attention_block(m, c, layer, norm(m, c, p, "input_layernorm", x)));  // [B, T, E]
    x = add(g, x,
            mlp_block(m, c, layer, norm(m, c, p, "post_attention_layernorm", x)));  // [B, T, E]
  }
  x = norm(m, c, ParameterScope(m, "model", "head"), "norm", x);  // [B, T, E]
  Value w = c.tie_word_embeddings ? table
                                  : ParameterScope(m, "", "head")
                                        .matrix("lm_head", c.vocab_size, c.hidden_width,
                                                {"vocab", "embed"}, c.initializer_range);
  finish(m, head, x, w);
  return m;
}

}  // namespace tessera
