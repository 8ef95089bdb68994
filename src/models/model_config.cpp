#include "models/model_config.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::array<std::pair<ModelType, std::string_view>, 7> kTypes{{
    {ModelType::kGptNeox, "gpt_neox"},
    {ModelType::kLlamaV2, "llama_v2"},
    {ModelType::kLlamaV3, "llama_v3"},
    {ModelType::kMistral, "mistral"},
    {ModelType::kMixtral, "mixtral"},
    {ModelType::kGpt2, "gpt2"},
    {ModelType::kQwen2, "qwen2"},
}};

bool is_gpt(ModelType type) { return type == ModelType::kGptNeox || type == ModelType::kGpt2; }

void check_range(std::string_view option, int64_t value, int64_t maximum) {
  if (value < 1 || value > maximum) {
    throw UserError(cat("--", option, " must lie in 1..", maximum, ": it is ", value));
  }
}

void check_number(std::string_view what, double value, double minimum, bool above) {
  if (std::isfinite(value) && (above ? value > minimum : value >= minimum)) return;
  throw UserError(
      cat(what, above ? " must be above " : " must be at least ", minimum, ": it is ", value));
}

void check_windowed_layers(const ModelConfig& c) {
  if (std::ssize(c.windowed_layers) != c.num_layers) {
    throw UserError(cat("a window for each of ", c.windowed_layers.size(),
                        " layers, --num_layers is ", c.num_layers));
  }
  if (!c.sliding_window) throw UserError("layers with a window, but no --sliding_window");
}

void check_rope_scaling(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  check_number("the rotary scaling factor", s.factor, 0, true);
  check_number("the factor of rotary cosines", s.attention_factor, 0, true);
  check_number("the rotary beta_slow", s.beta_slow, 0, true);
  check_number("the rotary beta_fast", s.beta_fast, 0, true);
  if (s.type == RopeScalingType::kYarn) check_number("yarn's rotary base", c.rope_theta, 1, true);
}

void check_dropout(const ModelConfig& c) {
  for (double p : {c.resid_pdrop, c.embd_pdrop, c.attn_pdrop}) {
    check_number("a dropout probability", p, 0, false);
    if (p >= 1) throw UserError(cat("a dropout probability must be below 1: it is ", p));
  }
  if (c.model_type == ModelType::kGptNeox && c.resid_pdrop != c.embd_pdrop) {
    throw UserError(cat("gpt_neox has one dropout probability of embeddings and layers: they are ",
                        c.embd_pdrop, " and ", c.resid_pdrop));
  }
}

}  // namespace

std::string_view name(ModelType type) {
  for (const auto& [value, text] : kTypes) {
    if (value == type) return text;
  }
  return "";
}

ModelType model_type_from_name(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [value, known] : kTypes) {
    if (known == text) return value;
    names.emplace_back(known);
  }
  throw UserError(cat("model type '", text, "' is not known; known are ", join(names, ", ")));
}

ModelConfig family_defaults(ModelType type) {
  ModelConfig config;
  config.model_type = type;
  switch (type) {
    case ModelType::kLlamaV2:
    case ModelType::kMistral: break;
    case ModelType::kLlamaV3:
      config.rope_scaling = {.type = RopeScalingType::kDynamic, .factor = 2.0};
      break;
    case ModelType::kMixtral:
      config.rope_theta = 1e6;
      config.num_local_experts = 8;
      config.num_experts_per_tok = 2;
      break;
    case ModelType::kGptNeox:
      config.rotary_pct = 0.25;
      config.bias = true;
      config.parallel_residual = true;
      break;
    case ModelType::kGpt2:
      config.tie_word_embeddings = true;
      config.tanh_gelu = true;
      config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.1;
      break;
    case ModelType::kQwen2:
      config.norm_epsilon = 1e-6;
      config.rope_theta = 1e6;
      config.attention_bias = true;
      break;
  }
  derive_shape(config);
  return config;
}

void derive_shape(ModelConfig& config) {
  check_range("hidden_width", config.hidden_width, int64_t{1} << 18);
  check_range("num_heads", config.num_heads, int64_t{1} << 14);
  if (config.hidden_width % config.num_heads != 0) {
    throw UserError(cat("--num_heads must divide --hidden_width: ", config.hidden_width,
                        " is not a multiple of ", config.num_heads));
  }
  config.head_dim = config.hidden_width / config.num_heads;
  if (is_gpt(config.model_type)) config.intermediate_size = 4 * config.hidden_width;
}

void check(const ModelConfig& c) {
  // Together these keep parameter counts and byte counts below 2^62.
  check_range("vocab_size", c.vocab_size, int64_t{1} << 24);
  check_range("hidden_width", c.hidden_width, int64_t{1} << 18);
  check_range("num_layers", c.num_layers, int64_t{1} << 12);
  check_range("num_heads", c.num_heads, int64_t{1} << 14);
  check_range("num_key_value_heads", c.num_key_value_heads, int64_t{1} << 14);
  check_range("intermediate_size", c.intermediate_size, int64_t{1} << 20);
  check_range("max_context_width", c.max_context_width, int64_t{1} << 24);
  check_range("num_local_experts", c.num_local_experts, int64_t{1} << 8);
  check_range("num_experts_per_tok", c.num_experts_per_tok, c.num_local_experts);
  if (c.sliding_window) check_range("sliding_window", *c.sliding_window, int64_t{1} << 30);
  if (!c.windowed_layers.empty()) check_windowed_layers(c);
  if (c.head_dim < 1 || c.head_dim > (1 << 12)) {
    throw UserError(cat("a head must have 1..4096 elements: it has ", c.head_dim));
  }
  if (c.num_heads % c.num_key_value_heads != 0) {
    throw UserError(cat("--num_key_value_heads must divide --num_heads: ", c.num_heads,
                        " is not a multiple of ", c.num_key_value_heads));
  }
  if (is_gpt(c.model_type) && c.num_key_value_heads != c.num_heads) {
    throw UserError(cat(name(c.model_type),
                        " has no grouped-query attention: --num_key_value_heads ",
                        c.num_key_value_heads, " must equal --num_heads ", c.num_heads));
  }
  if (is_gpt(c.model_type) && c.num_heads * c.head_dim != c.hidden_width) {
    throw UserError(cat("the heads of ", name(c.model_type), " make up its width: ", c.num_heads,
                        " heads of ", c.head_dim, " are not ", c.hidden_width));
  }
  if (c.model_type != ModelType::kGpt2 && c.head_dim % 2 != 0) {
    throw UserError(cat("rotary positions need an even head size: ", c.head_dim,
                        " (--hidden_width / --num_heads) is odd"));
  }
  if (!(c.rotary_pct >= 0 && c.rotary_pct <= 1))
    throw UserError(cat("--rotary_pct must lie in 0..1: it is ", c.rotary_pct));
  if (c.model_type == ModelType::kGptNeox && (rotary_width(c) < 2 || rotary_width(c) % 2 != 0)) {
    throw UserError(cat("--rotary_pct ", c.rotary_pct, " rotates ", rotary_width(c),
                        " elements of a head of ", c.head_dim,
                        ": it must be an even number, at least 2"));
  }
  check_number("the norm epsilon", c.norm_epsilon, 0, true);
  check_number("the rotary base", c.rope_theta, 0, true);
  check_rope_scaling(c);
  check_number("--initializer_range", c.initializer_range, 0, false);
  check_dropout(c);
  if (c.padding_id && (*c.padding_id < 0 || *c.padding_id >= c.vocab_size)) {
    throw UserError(
        cat("the padding id ", *c.padding_id, " lies outside of the vocabulary of ", c.vocab_size));
  }
}

int64_t layer_window(const ModelConfig& c, int64_t layer) {
  bool windowed = c.windowed_layers.empty() || c.windowed_layers[static_cast<size_t>(layer)];
  return windowed ? c.sliding_window.value_or(0) : 0;
}

std::optional<int64_t> longest_window(const ModelConfig& c) {
  bool bounded =
      c.model_type == ModelType::kGpt2 || c.rope_scaling.type == RopeScalingType::kDynamic;
  return bounded ? std::optional(c.max_context_width) : std::nullopt;
}

int64_t rotary_width(const ModelConfig& c) {
  return static_cast<int64_t>(static_cast<double>(c.head_dim) * c.rotary_pct);
}

namespace {

int64_t count_with_experts(const ModelConfig& c, int64_t experts) {
  int64_t h = c.hidden_width, query = c.num_heads * c.head_dim;
  int64_t key_value = c.num_key_value_heads * c.head_dim, f = c.intermediate_size;
  int64_t attention = 2 * h * query + 2 * h * key_value;
  if (c.attention_bias) attention += query + 2 * key_value;
  if (c.attention_output_bias) attention += h;
  int64_t embeddings = c.vocab_size * h * (c.tie_word_embeddings ? 1 : 2);
  if (is_gpt(c.model_type)) {
    int64_t biases = c.bias ? query + 2 * key_value + h + f + h : 0;
    int64_t norm = c.bias ? 2 * h : h;
    int64_t positions = c.model_type == ModelType::kGpt2 ? c.max_context_width * h : 0;
    return c.num_layers * (attention + 2 * h * f + biases + 2 * norm) + norm + embeddings +
           positions;
  }
  int64_t router = c.num_local_experts > 1 ? c.num_local_experts * h : 0;
  return c.num_layers * (attention + experts * 3 * h * f + router + 2 * h) + h + embeddings;
}

}  // namespace

int64_t parameter_count(const ModelConfig& config) {
  return count_with_experts(config, config.num_local_experts);
}

int64_t active_parameter_count(const ModelConfig& config) {
  return count_with_experts(config, config.num_experts_per_tok);
}

}  // namespace tessera
