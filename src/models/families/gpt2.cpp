#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/model_family.h"
#include "nn/layers.h"
#include "ops/composite/attention.h"
#include "ops/composite/embedding.h"
#include "ops/composite/gelu.h"
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
  FusedLinear qkv(p, "c_attn", x, {3, E, E}, {"", "heads", "embed"}, c.initializer_range, c.bias,
                  [&](Value stacked) { return unstack(g, stacked); });
  auto heads = [&](size_t i) { return reshape(g, qkv(i), {B, T, H, D}); };  // [B, T, H, D]
  Value q = heads(0), k = heads(1), v = heads(2);                           // [B, T, H, D]
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

// GPT-2 (Radford et al. 2019): x + attention(norm(x)), then x + mlp(norm(x)), with layer norms,
// learned positions, GELU and a tied output matrix; biases by `bias`. With ModelHead::kTraining
// dropout on embeddings, on attention weights and on what enters the residual stream.
//
// Queries, keys and values of all heads are one parameter, c_attn: [3, E, E] and [3, E]. So they
// are one tensor in a checkpoint, and each of the three is cut by heads on tensor-parallel ranks.
//
// First values as in the paper: matrices whose results enter the residual stream have a standard
// deviation of initializer_range / sqrt(2 L).
ModelGraph build(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  ModelConfig c = for_head(config, head);
  ModelGraph m = begin_model(c);
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

void set_defaults(ModelConfig& c) {
  c.tie_word_embeddings = true;
  c.tanh_gelu = true;
  c.resid_pdrop = c.embd_pdrop = c.attn_pdrop = 0.1;
}

int64_t count(const ModelConfig& c) {
  int64_t E = c.hidden_width, F = c.intermediate_size, V = c.vocab_size, P = c.max_context_width;
  int64_t norm = c.bias ? 2 * E : E, biases = c.bias ? 5 * E + F : 0;
  return c.num_layers * (4 * E * E + 2 * E * F + biases + 2 * norm) + norm + P * E +
         V * E * (c.tie_word_embeddings ? 1 : 2);
}

GivenWidths read(const HuggingFaceKeys& keys, ModelConfig& config) {
  config.vocab_size = keys.integer("vocab_size", 50257);
  config.hidden_width = keys.integer("n_embd", 768);
  config.num_layers = keys.integer("n_layer", 12);
  config.num_heads = config.num_key_value_heads = keys.integer("n_head", 12);
  config.max_context_width = keys.integer("n_positions", 1024);
  config.norm_epsilon = keys.positive("layer_norm_epsilon", 1e-5);
  config.tanh_gelu = read_tanh_gelu(keys, "activation_function", "gelu_new");
  config.bias = true;
  config.resid_pdrop = keys.real("resid_pdrop", 0.1);
  config.embd_pdrop = keys.real("embd_pdrop", 0.1);
  config.attn_pdrop = keys.real("attn_pdrop", 0.1);
  if (!keys.boolean("scale_attn_weights", true)) keys.refuse("'scale_attn_weights' must be true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (keys.boolean(key, false)) keys.refuse(cat("'", key, "' is not supported"));
  }
  if (!keys.find("n_inner")) return {};
  return {.mlp = keys.integer("n_inner", 0)};
}

void write(const ModelConfig& c, nlohmann::ordered_json& json) {
  json.update({{"n_embd", c.hidden_width},
               {"n_layer", c.num_layers},
               {"n_head", c.num_heads},
               {"n_inner", c.intermediate_size},
               {"n_positions", c.max_context_width},
               {"activation_function", c.tanh_gelu ? "gelu_new" : "gelu"},
               {"layer_norm_epsilon", c.norm_epsilon},
               {"resid_pdrop", c.resid_pdrop},
               {"embd_pdrop", c.embd_pdrop},
               {"attn_pdrop", c.attn_pdrop}});
}

void add_biases(ModelConfig& c) { c.bias = true; }

constexpr HuggingFaceClass kClasses[] = {{"GPT2LMHeadModel", "gpt2", read}};
constexpr std::string_view kLoraTargets[] = {"c_attn"};
constexpr std::string_view kOptions[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", "bias", "gelu"};
constexpr std::string_view kBuffers[] = {".attn.bias", ".attn.masked_bias"};
constexpr std::string_view kConv1d[] = {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"};

constexpr ModelPreset published(std::string_view name, int64_t hidden, int64_t layers,
                                int64_t heads) {
  return {.name = name,
          .vocab = 50257,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .key_value_heads = heads,
          .intermediate = 4 * hidden,
          .context = 1024,
          .tied = true,
          .bias = true};
}
constexpr ModelPreset kPresets[] = {
    published("gpt2", 768, 12, 12),
    published("gpt2_medium", 1024, 24, 16),
    published("gpt2_large", 1280, 36, 20),
    published("gpt2_xl", 1600, 48, 25),
};

}  // namespace

constinit const ModelFamily families::kGpt2{
    .type = ModelType::kGpt2,
    .name = "gpt2",
    .set_defaults = set_defaults,
    .check = check_plain_heads,
    .parameter_count = count,
    .mlp_widths = 4,
    .learned_positions = true,
    .always_tied = true,
    .options = kOptions,
    .presets = kPresets,
    .lora_targets = kLoraTargets,
    .build = build,
    .classes = kClasses,
    .write = write,
    .complete = add_biases,
    .tensors = {.prefix = "transformer.",
                .embedding = "transformer.wte.weight",
                .output = "lm_head.weight",
                .buffers = kBuffers,
                .transposed = kConv1d},
};

}  // namespace tessera
