#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "models/hugging_face_keys.h"
#include "models/model_config.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr const char* kOriginal = "original_max_position_embeddings";

// An object with something in it, or null.
const Json* find_object(const HuggingFaceKeys& keys, const char* key) {
  const Json* value = keys.find(key);
  if (value && !value->is_object()) keys.fail(key, "an object", *value);
  return value && !value->empty() ? value : nullptr;
}

std::string type_of(const HuggingFaceKeys& rope) {
  std::string older = rope.text("type", ""), newer = rope.text("rope_type", older);
  if (!older.empty() && older != newer)
    rope.refuse(cat("'type' is '", older, "', 'rope_type' is '", newer, "': remove one of them"));
  return newer.empty() ? "default" : newer;
}

double required(const HuggingFaceKeys& rope, const char* key) {
  if (!rope.find(key)) rope.refuse(cat("'", key, "' is missing"));
  return rope.positive(key, 1);
}

// Null is as good as absent.
double optional(const HuggingFaceKeys& rope, const char* key, double fallback) {
  return rope.find(key) ? rope.positive(key, fallback) : fallback;
}

// Tokens that the model was made for before it was stretched: the key beside the object wins.
int64_t original_positions(const HuggingFaceKeys& top, const HuggingFaceKeys& rope,
                           const ModelConfig& config) {
  bool inside = rope.has(kOriginal), outside = top.has(kOriginal);
  const HuggingFaceKeys& said = outside ? top : rope;
  int64_t positions = said.integer(kOriginal, inside || outside ? 0 : config.max_context_width);
  if (positions < 1) said.refuse(cat("'", kOriginal, "' must be at least 1"));
  return positions;
}

void read_llama3(const HuggingFaceKeys& rope, RopeScaling& scaling) {
  scaling.low_freq_factor = required(rope, "low_freq_factor");
  scaling.high_freq_factor = required(rope, "high_freq_factor");
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    rope.refuse("'high_freq_factor' must be above 'low_freq_factor'");
}

// The factor of cosines and sines where it is not given (Peng et al. 2023, equation 22).
double yarn_factor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// `factor` null: what the two lengths give.
void read_yarn(const HuggingFaceKeys& rope, const ModelConfig& config, RopeScaling& scaling) {
  if (!rope.has("factor")) rope.refuse("'factor' is missing");
  double lengths = static_cast<double>(config.max_context_width) /
                   static_cast<double>(scaling.original_max_position);
  scaling.factor = optional(rope, "factor", lengths);
  double mscale = optional(rope, "mscale", 0), all = optional(rope, "mscale_all_dim", 0);
  double derived = mscale > 0 && all > 0
                       ? yarn_factor(scaling.factor, mscale) / yarn_factor(scaling.factor, all)
                       : yarn_factor(scaling.factor, 1);
  scaling.attention_factor = optional(rope, "attention_factor", derived);
  scaling.beta_fast = optional(rope, "beta_fast", 32);
  scaling.beta_slow = optional(rope, "beta_slow", 1);
  scaling.truncate = rope.boolean("truncate", true);
}

void read_scaling(const HuggingFaceKeys& top, const HuggingFaceKeys& rope, ModelConfig& config) {
  constexpr std::pair<std::string_view, RopeScalingType> kTypes[] = {
      {"default", RopeScalingType::kNone},
      {"linear", RopeScalingType::kLinear},
      {"dynamic", RopeScalingType::kDynamic},
      {"llama3", RopeScalingType::kLlama3},
      {"yarn", RopeScalingType::kYarn}};
  std::string named = type_of(rope);
  std::optional<RopeScalingType> type;
  for (auto [name, value] : kTypes) {
    if (named == name) type = value;
  }
  if (!type) {
    rope.refuse(cat("rope type '", named,
                    "' is not supported; supported are default, linear, dynamic, llama3, yarn"));
  }
  RopeScaling& scaling = config.rope_scaling;
  scaling.type = *type;
  if (*type == RopeScalingType::kNone) return;
  if (*type == RopeScalingType::kLlama3 || *type == RopeScalingType::kYarn)
    scaling.original_max_position = original_positions(top, rope, config);
  if (*type == RopeScalingType::kYarn) return read_yarn(rope, config, scaling);
  scaling.factor = required(rope, "factor");
  if (*type == RopeScalingType::kLlama3) read_llama3(rope, scaling);
}

}  // namespace

void read_rope(const HuggingFaceKeys& top, const RopeKeys& own, ModelConfig& config) {
  config.rope_theta = top.positive(own.theta, 1e4);
  config.rotary_pct = top.real(own.share, own.absent_share);
  const Json *newer = find_object(top, "rope_parameters"),
             *older = find_object(top, "rope_scaling");
  if (const Json* object = older ? older : newer) {
    std::string place = cat(top.where(), ": ", older ? "rope_scaling" : "rope_parameters");
    HuggingFaceKeys rope(*object, place);
    config.rope_theta = rope.positive("rope_theta", config.rope_theta);
    config.rotary_pct = rope.real("partial_rotary_factor", config.rotary_pct);
    read_scaling(top, rope, config);
    rope.refuse_others(std::to_array<std::string_view>({"finetuned"}));
    top.must_agree(own.theta, config.rope_theta, older ? "rope_scaling" : "rope_parameters");
    top.must_agree(own.share, config.rotary_pct, older ? "rope_scaling" : "rope_parameters");
  }
  if (older && newer) {
    // The older object counts alone, but what it does not repeat must not get lost.
    HuggingFaceKeys lost(*newer, top.where());
    std::string because = cat("'rope_scaling' beside 'rope_parameters' wins whole, which");
    lost.must_agree("rope_theta", config.rope_theta, because);
    lost.must_agree("partial_rotary_factor", config.rotary_pct, because);
  }
  // Where these are the family's own keys they agree already.
  top.must_agree("rope_theta", config.rope_theta, cat("'", own.theta, "' (or its default)"));
  top.must_agree("partial_rotary_factor", config.rotary_pct,
                 cat("'", own.share, "' (or its default)"));
}

nlohmann::ordered_json rope_scaling_json(const RopeScaling& s) {
  switch (s.type) {
    case RopeScalingType::kNone: break;
    case RopeScalingType::kLinear: return {{"rope_type", "linear"}, {"factor", s.factor}};
    case RopeScalingType::kDynamic: return {{"rope_type", "dynamic"}, {"factor", s.factor}};
    case RopeScalingType::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", s.factor},
              {"low_freq_factor", s.low_freq_factor},
              {"high_freq_factor", s.high_freq_factor},
              {"original_max_position_embeddings", s.original_max_position}};
    case RopeScalingType::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", s.factor},
              {"attention_factor", s.attention_factor},
              {"beta_fast", s.beta_fast},
              {"beta_slow", s.beta_slow},
              {"truncate", s.truncate},
              {"original_max_position_embeddings", s.original_max_position}};
  }
  return nullptr;
}

}  // namespace tessera
