#include "models/model_config.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "models/model_family.h"

namespace tessera {
namespace {

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
}

void check_lora(const Lora& lora) {
  if (lora.rank == 0) return;
  check_range("lora_rank", lora.rank, int64_t{1} << 16);
  check_number("--lora_alpha", lora.alpha, 0, true);
  check_number("--lora_dropout", lora.dropout, 0, false);
  if (lora.dropout >= 1)
    throw UserError(cat("--lora_dropout must be below 1: it is ", lora.dropout));
  if (lora.targets.empty()) throw UserError("--lora_targets must name what is adapted");
}

}  // namespace

ModelConfig family_defaults(ModelType type) {
  ModelConfig config;
  config.model_type = type;
  if (auto set = model_family(type).set_defaults) set(config);
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
  int64_t widths = model_family(config.model_type).mlp_widths;
  if (widths > 0) config.intermediate_size = widths * config.hidden_width;
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
  if (!(c.rotary_pct >= 0 && c.rotary_pct <= 1))
    throw UserError(cat("--rotary_pct must lie in 0..1: it is ", c.rotary_pct));
  model_family(c.model_type).check(c);
  check_number("the norm epsilon", c.norm_epsilon, 0, true);
  check_number("the rotary base", c.rope_theta, 0, true);
  check_rope_scaling(c);
  check_number("--initializer_range", c.initializer_range, 0, false);
  check_dropout(c);
  check_lora(c.lora);
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
  bool bounded = model_family(c.model_type).learned_positions ||
                 c.rope_scaling.type == RopeScalingType::kDynamic;
  return bounded ? std::optional(c.max_context_width) : std::nullopt;
}

int64_t rotary_width(const ModelConfig& c) {
  return static_cast<int64_t>(static_cast<double>(c.head_dim) * c.rotary_pct);
}

int64_t parameter_count(const ModelConfig& config) {
  return model_family(config.model_type).parameter_count(config);
}

}  // namespace tessera
