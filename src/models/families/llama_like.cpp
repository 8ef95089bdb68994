#include "models/families/llama_like.h"

#include <cmath>

#include "models/rotary_angles.h"
#include "nn/layers.h"
#include "ops/composite/attention.h"
#include "ops/composite/embedding.h"
#include "ops/composite/rope.h"
#include "ops/composite/swiglu.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

// The embeddings of tokens, of which the padding id's gets no gradient from here.
Value embedded(Graph& g, const ModelConfig& c, ModelHead head, Value tokens, Value table) {
  Value x = embedding(g, tokens, table);  // [B, T, E]
  if (!c.padding_id || head != ModelHead::kTraining) return x;
  Value padding = compare(g, Comparison::kEq, tokens,
                          constant_like(g, tokens, static_cast<double>(*c.padding_id)));  // [B, T]
  return select(g, broadcast_trailing(g, padding, g.shape(x)),
                g.add_one(std::make_shared<StopGradient>(), {x}), x);  // [B, T, E]
}

Value attention_block(ModelGraph& m, const ModelConfig& c, int64_t number, Value x, Value row_keys,
                      bool head_norms) {
  Graph& g = m.graph;
  Scope scope(g, "attn");
  std::string layer = cat("layers.", number);
  ParameterScope p(m, cat("model.", layer, ".self_attn"), layer);
  int64_t B = g.shape(x)[0], T = g.shape(x)[1], E = c.hidden_width;
  int64_t H = c.num_heads, K = c.num_key_value_heads, D = c.head_dim;
  auto heads = [&](const char* name, int64_t n, const char* axis) {
    Value y = linear_layer(p, name, x, n * D, {axis, "embed"}, c.initializer_range,
                           c.attention_bias);  // [B, T, n*D]
    return reshape(g, y, {B, T, n, D});        // [B, T, n, D]
  };
  RotaryAngles angles = rotary_angles(c);
  auto turned = [&](const char* name, const char* norm, int64_t n, const char* axis) {
    Value y = heads(name, n, axis);                                  // [B, T, n, D]
    if (head_norms) y = rms_norm_layer(p, norm, y, c.norm_epsilon);  // [B, T, n, D]
    return rope(g, y, angles);                                       // [B, T, n, D]
  };
  Value q = turned("q_proj", "q_norm", H, "heads");     // [B, T, H, D]
  Value k = turned("k_proj", "k_norm", K, "kv_heads");  // [B, T, K, D]
  Value v = heads("v_proj", K, "kv_heads");             // [B, T, K, D]
  double scale = 1 / std::sqrt(static_cast<double>(D));
  Value o = attention(g, q, k, v, scale, {true, layer_window(c, number)}, row_keys, c.attn_pdrop,
                      cat(g.scope(), ".weights"));  // [B, T, H, D]
  o = reshape(g, o, {B, T, H * D});                 // [B, T, H*D]
  return linear_layer(p, "o_proj", o, E, {"embed", "heads"}, c.initializer_range,
                      c.attention_output_bias);  // [B, T, E]
}

Value mlp_block(ModelGraph& m, const ModelConfig& c, const std::string& layer, Value x) {
  Scope scope(m.graph, "mlp");
  ParameterScope p(m, cat("model.", layer, ".mlp"), layer);
  int64_t E = c.hidden_width, F = c.intermediate_size;
  double sd = c.initializer_range;
  Value gate = linear_layer(p, "gate_proj", x, F, {"mlp", "embed"}, sd);  // [B, T, F]
  Value up = linear_layer(p, "up_proj", x, F, {"mlp", "embed"}, sd);      // [B, T, F]
  Value y = swiglu(m.graph, gate, up);                                    // [B, T, F]
  return linear_layer(p, "down_proj", y, E, {"embed", "mlp"}, sd);        // [B, T, E]
}

}  // namespace

int64_t count_llama_like(const ModelConfig& c) {
  int64_t E = c.hidden_width, Q = c.num_heads * c.head_dim, K = c.num_key_value_heads * c.head_dim;
  int64_t attention = 2 * E * Q + 2 * E * K, mlp = 3 * E * c.intermediate_size;
  if (c.attention_bias) attention += Q + 2 * K;
  if (c.attention_output_bias) attention += E;
  int64_t router = c.num_local_experts > 1 ? c.num_local_experts * E : 0, norms = 2 * E;
  return c.num_layers * (attention + c.num_local_experts * mlp + router + norms) + E +
         c.vocab_size * E * (c.tie_word_embeddings ? 1 : 2);
}

ModelGraph llama_like(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  return llama_like(config, batch, length, head, /*head_norms=*/false);
}

ModelGraph llama_like(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head,
                      bool head_norms) {
  ModelConfig c = for_head(config, head);
  ModelGraph m = begin_model(c);
  Graph& g = m.graph;
  int64_t V = c.vocab_size, E = c.hidden_width;
  double sd = c.initializer_range, epsilon = c.norm_epsilon;
  Value tokens = token_input(m, batch, length);  // [B, T]
  Value row_keys = row_keys_input(m, c, batch);  // [B]
  Value table, x;
  {
    Scope scope(g, "embed");
    table = ParameterScope(m, "model", "embed")
                .matrix("embed_tokens", {V, E}, {"vocab", "embed"}, sd);  // [V, E]
    x = embedded(g, c, head, tokens, table);                              // [B, T, E]
  }
  for (int64_t l = 0; l < c.num_layers; ++l) {
    std::string layer = cat("layers.", l);
    LayerScope scope(g, l);
    ParameterScope p(m, cat("model.", layer), layer);
    Value n = rms_norm_layer(p, "input_layernorm", x, epsilon);        // [B, T, E]
    x = add(g, x, attention_block(m, c, l, n, row_keys, head_norms));  // [B, T, E]
    n = rms_norm_layer(p, "post_attention_layernorm", x, epsilon);     // [B, T, E]
    x = add(g, x, mlp_block(m, c, layer, n));                          // [B, T, E]
  }
  x = rms_norm_layer(ParameterScope(m, "model", "head"), "norm", x, epsilon);  // [B, T, E]
  Value w = c.tie_word_embeddings
                ? table
                : ParameterScope(m, "", "head").matrix("lm_head", {V, E}, {"vocab", "embed"}, sd);
  write_head(m, head, x, w);
  return m;
}

}  // namespace tessera
