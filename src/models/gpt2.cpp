#include "models/gpt2.h"

#include <cmath>
#include <optional>

#include "nn/layers.h"
#include "ops/composite/attention.h"
#include "ops/composite/embedding.h"
#include "ops/composite/gelu.h"
#include "ops/composite/linear.h"
#include "ops/move/unstack.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

double residual_deviation(const ModelConfig& c) {
  return c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.num_layers));
}

Value attention_block(Graph& g, const ModelConfig& c, const ParameterScope& p, Value x,
                      Value row_keys) {
  Scope scope(g, "attn");
  int64_t B = g.shape(x)[0], T = g.shape(x)[1], E = c.hidden_width;
  int64_t H = c.num_heads, D = c.head_dim;
  std::vector<Value> w = unstack(g, p.matrix("c_attn", {3, E, E}, {"", "heads", "embed"},
                                             c.initializer_range));  // 3 of [E, E]
  std::vector<std::optional<Value>> b(3);
  if (c.bias) {
    std::vector<Value> biases = unstack(g, p.bias("c_attn", {3, E}, {"", "heads"}));  // 3 of [E]
    b.assign(biases.begin(), biases.end());
  }
  auto heads = [&](size_t i) {
    return reshape(g, linear(g, x, w[i], b[i]), {B, T, H, D});  // [B, T, H, D]
  };
  Value q = heads(0), k = heads(1), v = heads(2);  // [B, T, H, D]
  double scale = 1 / std::sqrt(static_cast<double>(D));
  Value o = attention(g, q, k, v, scale, {}, row_keys, c.attn_pdrop,
                      cat(g.scope(), ".weights"));  // [B, T, H, D]
  o = reshape(g, o, {B, T, E});                     // [B, T, E]
  Value y = linear_layer(p, "c_proj", o, E, {"embed", "heads"}, residual_deviation(c),
                         c.bias);              // [B, T, E]
  return drop(g, y, row_keys, c.resid_pdrop);  // [B, T, E]
}

Value mlp_block(Graph& g, const ModelConfig& c, const ParameterScope& p, Value x, Value row_keys) {
  Scope scope(g, "mlp");
  int64_t E = c.hidden_width, F = c.intermediate_size;
  Value y = linear_layer(p, "c_fc", x, F, {"mlp", "embed"}, c.initializer_range,
                         c.bias);                                    // [B, T, F]
  y = gelu(g, y, c.tanh_gelu ? GeluKind::kTanh : GeluKind::kExact);  // [B, T, F]
  y = linear_layer(p, "c_proj", y, E, {"embed", "mlp"}, residual_deviation(c),
                   c.bias);                    // [B, T, E]
  return drop(g, y, row_keys, c.resid_pdrop);  // [B, T, E]
}

}  // namespace

ModelGraph gpt2(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  ModelConfig c = for_head(config, head);
  ModelGraph m;
  Graph& g = m.graph;
  int64_t B = batch, T = length, V = c.vocab_size, E = c.hidden_width, P = c.max_context_width;
  double sd = c.initializer_range, epsilon = c.norm_epsilon;
  Value tokens = token_input(m, B, T);       // [B, T]
  Value row_keys = row_keys_input(m, c, B);  // [B]

  Value table, x;
  {
    Scope scope(g, "embed");
    ParameterScope tokens_unit(m, "transformer", "embed"), positions(m, "transformer", "positions");
    table = tokens_unit.matrix("wte", {V, E}, {"vocab", "embed"}, sd);  // [V, E]
    Value places = positions.matrix("wpe", {P, E}, {"", "embed"}, sd);  // [P, E]
    Value numbers = iota(g, {{B, T}, DType::kI32}, 1);                  // [B, T]
    x = embedding(g, tokens, table);                                    // [B, T, E]
    x = add(g, x, embedding(g, numbers, places));                       // [B, T, E]
    x = drop(g, x, row_keys, c.embd_pdrop);                             // [B, T, E]
  }
  for (int64_t l = 0; l < c.num_layers; ++l) {
    std::string unit = cat("layers.", l), name = cat("transformer.h.", l);
    LayerScope scope(g, l);
    ParameterScope p(m, name, unit), attn(m, name + ".attn", unit), mlp(m, name + ".mlp", unit);
    Value n = layer_norm_layer(p, "ln_1", x, epsilon, c.bias);  // [B, T, E]
    x = add(g, x, attention_block(g, c, attn, n, row_keys));    // [B, T, E]
    n = layer_norm_layer(p, "ln_2", x, epsilon, c.bias);        // [B, T, E]
    x = add(g, x, mlp_block(g, c, mlp, n, row_keys));           // [B, T, E]
  }
  ParameterScope top(m, "transformer", "head");
  x = layer_norm_layer(top, "ln_f", x, epsilon, c.bias);  // [B, T, E]
  Value w = c.tie_word_embeddings
                ? table
                : ParameterScope(m, "", "head").matrix("lm_head", {V, E}, {"vocab", "embed"}, sd);
  write_head(m, head, x, w);
  return m;
}

}  // namespace tessera
