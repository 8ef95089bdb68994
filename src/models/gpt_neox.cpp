#include "models/gpt_neox.h"

#include <cmath>

#include "models/rotary_angles.h"
#include "nn/layers.h"
#include "ops/composite/attention.h"
#include "ops/composite/embedding.h"
#include "ops/composite/gelu.h"
#include "ops/composite/linear.h"
#include "ops/composite/rope.h"
#include "ops/move/unstack.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

Value attention_block(Graph& g, const ModelConfig& c, const ParameterScope& p, Value x,
                      Value row_keys) {
  Scope scope(g, "attn");
  int64_t B = g.shape(x)[0], T = g.shape(x)[1], E = c.hidden_width;
  int64_t H = c.num_heads, D = c.head_dim;
  // The parameters are brought into order, not queries, keys and values: they are the smaller ones
  // in most steps.
  Value w = p.matrix("query_key_value", {H, 3, D, E}, {"heads", "", "", "embed"},
                     c.initializer_range);                                  // [H, 3, D, E]
  Value b = p.bias("query_key_value", {H, 3, D}, {"heads", "", ""});        // [H, 3, D]
  std::vector<Value> matrices = unstack(g, transpose(g, w, {1, 0, 2, 3}));  // 3 of [H, D, E]
  std::vector<Value> biases = unstack(g, transpose(g, b, {1, 0, 2}));       // 3 of [H, D]
  auto heads = [&](size_t i) {
    Value matrix = reshape(g, matrices[i], {H * D, E});           // [H*D, E]
    Value bias = reshape(g, biases[i], {H * D});                  // [H*D]
    return reshape(g, linear(g, x, matrix, bias), {B, T, H, D});  // [B, T, H, D]
  };
  RotaryAngles angles = rotary_angles(c);
  Value q = rope(g, heads(0), angles);  // [B, T, H, D]
  Value k = rope(g, heads(1), angles);  // [B, T, H, D]
  Value v = heads(2);                   // [B, T, H, D]
  double scale = 1 / std::sqrt(static_cast<double>(D));
  Value o = attention(g, q, k, v, scale, {}, row_keys, c.attn_pdrop,
                      cat(g.scope(), ".weights"));  // [B, T, H, D]
  o = reshape(g, o, {B, T, H * D});                 // [B, T, H*D]
  Value y = linear_layer(p, "dense", o, E, {"embed", "heads"}, c.initializer_range,
                         true);                // [B, T, E]
  return drop(g, y, row_keys, c.resid_pdrop);  // [B, T, E]
}

Value mlp_block(Graph& g, const ModelConfig& c, const ParameterScope& p, Value x, Value row_keys) {
  Scope scope(g, "mlp");
  int64_t E = c.hidden_width, F = c.intermediate_size;
  double sd = c.initializer_range;
  Value y = linear_layer(p, "dense_h_to_4h", x, F, {"mlp", "embed"}, sd, true);  // [B, T, F]
  y = gelu(g, y, c.tanh_gelu ? GeluKind::kTanh : GeluKind::kExact);              // [B, T, F]
  y = linear_layer(p, "dense_4h_to_h", y, E, {"embed", "mlp"}, sd, true);        // [B, T, E]
  return drop(g, y, row_keys, c.resid_pdrop);                                    // [B, T, E]
}

}  // namespace

ModelGraph gpt_neox(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  ModelConfig c = for_head(config, head);
  ModelGraph m;
  Graph& g = m.graph;
  int64_t V = c.vocab_size, E = c.hidden_width;
  double sd = c.initializer_range, epsilon = c.norm_epsilon;
  Value tokens = token_input(m, batch, length);  // [B, T]
  Value row_keys = row_keys_input(m, c, batch);  // [B]
  Value table, x;
  {
    Scope scope(g, "embed");
    table = ParameterScope(m, "gpt_neox", "embed")
                .matrix("embed_in", {V, E}, {"vocab", "embed"}, sd);  // [V, E]
    x = embedding(g, tokens, table);                                  // [B, T, E]
    x = drop(g, x, row_keys, c.embd_pdrop);                           // [B, T, E]
  }
  for (int64_t l = 0; l < c.num_layers; ++l) {
    std::string unit = cat("layers.", l), name = cat("gpt_neox.layers.", l);
    LayerScope scope(g, l);
    ParameterScope p(m, name, unit), attn(m, name + ".attention", unit),
        mlp(m, name + ".mlp", unit);
    Value n = layer_norm_layer(p, "input_layernorm", x, epsilon, true);        // [B, T, E]
    Value a = add(g, x, attention_block(g, c, attn, n, row_keys));             // [B, T, E]
    Value from = c.parallel_residual ? x : a;                                  // [B, T, E]
    n = layer_norm_layer(p, "post_attention_layernorm", from, epsilon, true);  // [B, T, E]
    x = add(g, a, mlp_block(g, c, mlp, n, row_keys));                          // [B, T, E]
  }
  x = layer_norm_layer(ParameterScope(m, "gpt_neox", "head"), "final_layer_norm", x, epsilon,
                       true);  // [B, T, E]
  Value w = c.tie_word_embeddings
                ? table
                : ParameterScope(m, "", "head").matrix("embed_out", {V, E}, {"vocab", "embed"}, sd);
  write_head(m, head, x, w);
  return m;
}

}  // namespace tessera
