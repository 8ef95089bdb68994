#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "models/model_family.h"
#include "models/rotary_angles.h"
#include "nn/layers.h"
#include "ops/composite/attention.h"
#include "ops/composite/embedding.h"
#include "ops/composite/gelu.h"
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
  auto parts = [&](Value fused) {
    std::vector<int64_t> order{1, 0, 2, 3};
    order.resize(g.shape(fused).size());
    std::vector<Value> three = unstack(g, transpose(g, fused, order));  // 3 of [H, D, ..]
    for (Value& part : three) {
      Shape shape = g.shape(part);
      shape.erase(shape.begin());
      shape[0] = H * D;
      part = reshape(g, part, shape);  // [H*D, ..]
    }
    return three;
  };
  FusedLinear qkv(p, "query_key_value", x, {H, 3, D, E}, {"heads", "", "", "embed"},
                  c.initializer_range, true, parts);
  auto heads = [&](size_t i) { return reshape(g, qkv(i), {B, T, H, D}); };  // [B, T, H, D]
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

// GPT-NeoX (Black et al. 2022): attention and MLP side by side, x + attention(norm(x)) +
// mlp(norm'(x)), or one after the other without `parallel_residual`; layer norms, rotary positions
// on the first `rotary_pct` of each head, exact GELU, biases in all layers but the output matrix,
// which is not tied unless asked for.
//
// Queries, keys and values are one parameter that begins with the heads, query_key_value
// [H, 3, D, E] and [H, 3, D]: the rows of a checkpoint's tensor [3 E, E], and cut like them.
ModelGraph build(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
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

void set_defaults(ModelConfig& c) {
  c.rotary_pct = 0.25;
  c.bias = true;
  c.parallel_residual = true;
}

void check_neox(const ModelConfig& c) {
  check_plain_heads(c);
  check_rotary_heads(c);
  if (rotary_width(c) < 2 || rotary_width(c) % 2 != 0) {
    throw UserError(cat("--rotary_pct ", c.rotary_pct, " rotates ", rotary_width(c),
                        " elements of a head of ", c.head_dim,
                        ": it must be an even number, at least 2"));
  }
  if (c.resid_pdrop != c.embd_pdrop) {
    throw UserError(cat("gpt_neox has one dropout probability of embeddings and layers: they are ",
                        c.embd_pdrop, " and ", c.resid_pdrop));
  }
}

int64_t count(const ModelConfig& c) {
  int64_t E = c.hidden_width, F = c.intermediate_size, norm = 2 * E, biases = 5 * E + F;
  return c.num_layers * (4 * E * E + 2 * E * F + biases + 2 * norm) + norm +
         c.vocab_size * E * (c.tie_word_embeddings ? 1 : 2);
}

constexpr RopeKeys kRopeKeys{"rotary_emb_base", "rotary_pct", 0.25};

GivenWidths read(const HuggingFaceKeys& keys, ModelConfig& config) {
  config.vocab_size = keys.integer("vocab_size", 50432);
  config.hidden_width = keys.integer("hidden_size", 6144);
  config.num_layers = keys.integer("num_hidden_layers", 44);
  config.num_heads = config.num_key_value_heads = keys.integer("num_attention_heads", 64);
  config.max_context_width = keys.integer("max_position_embeddings", 2048);
  config.norm_epsilon = keys.positive("layer_norm_eps", 1e-5);
  config.tanh_gelu = read_tanh_gelu(keys, "hidden_act", "gelu");
  config.parallel_residual = keys.boolean("use_parallel_residual", true);
  config.attn_pdrop = keys.real("attention_dropout", 0);
  config.resid_pdrop = config.embd_pdrop = keys.real("hidden_dropout", 0);
  read_rope(keys, kRopeKeys, config);
  if (!keys.boolean("attention_bias", true)) keys.refuse("'attention_bias' must be true");
  return {.mlp = keys.integer("intermediate_size", 24576)};
}

void write(const ModelConfig& c, nlohmann::ordered_json& json) {
  json.update({{"hidden_size", c.hidden_width},
               {"num_hidden_layers", c.num_layers},
               {"num_attention_heads", c.num_heads},
               {"intermediate_size", c.intermediate_size},
               {"max_position_embeddings", c.max_context_width},
               {"hidden_act", c.tanh_gelu ? "gelu_new" : "gelu"},
               {"layer_norm_eps", c.norm_epsilon},
               {"use_parallel_residual", c.parallel_residual},
               {"attention_dropout", c.attn_pdrop},
               {"hidden_dropout", c.resid_pdrop},
               {"rotary_pct", c.rotary_pct},
               {"rotary_emb_base", c.rope_theta},
               {"rope_scaling", rope_scaling_json(c.rope_scaling)},
               {"attention_bias", true}});
}

constexpr HuggingFaceClass kClasses[] = {{"GPTNeoXForCausalLM", "gpt_neox", read}};
constexpr std::string_view kLoraTargets[] = {"query_key_value"};
constexpr std::string_view kOptions[] = {"rotary_pct", "rotary_emb_base"};
constexpr std::string_view kBuffers[] = {".attention.bias", ".attention.masked_bias",
                                         ".rotary_emb.inv_freq"};

constexpr ModelSize size(std::string_view name, int64_t hidden, int64_t layers, int64_t heads) {
  return {.name = name,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .key_value_heads = heads,
          .intermediate = 4 * hidden};
}
constexpr ModelSize kSizes[] = {
    size("7b", 4096, 32, 32),  size("13b", 5120, 40, 40), size("20b", 6144, 44, 64),
    size("65b", 8192, 80, 64), size("70b", 8192, 80, 64),
};

}  // namespace

constinit const ModelFamily families::kGptNeox{
    .type = ModelType::kGptNeox,
    .name = "gpt_neox",
    .set_defaults = set_defaults,
    .check = check_neox,
    .parameter_count = count,
    .mlp_widths = 4,
    .options = kOptions,
    .sizes = kSizes,
    .lora_targets = kLoraTargets,
    .build = build,
    .classes = kClasses,
    .write = write,
    .tensors = {.prefix = "gpt_neox.",
                .embedding = "gpt_neox.embed_in.weight",
                .output = "embed_out.weight",
                .buffers = kBuffers,
                .output_in_memory = "lm_head.weight"},
};

}  // namespace tessera
