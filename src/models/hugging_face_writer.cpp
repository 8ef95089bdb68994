#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "models/model_config.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json rope_scaling(const RopeScaling& s) {
  if (s.type == RopeScalingType::kNone) return nullptr;
  if (s.type == RopeScalingType::kDynamic) return {{"rope_type", "dynamic"}, {"factor", s.factor}};
  return {{"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", s.original_max_position}};
}

Json llama_json(const ModelConfig& c) {
  bool mistral = c.model_type == ModelType::kMistral;
  Json json{{"architectures", {mistral ? "MistralForCausalLM" : "LlamaForCausalLM"}},
            {"model_type", hugging_face_model_type(c.model_type)},
            {"vocab_size", c.vocab_size},
            {"hidden_size", c.hidden_width},
            {"num_hidden_layers", c.num_layers},
            {"num_attention_heads", c.num_heads},
            {"num_key_value_heads", c.num_key_value_heads},
            {"head_dim", c.head_dim},
            {"intermediate_size", c.intermediate_size},
            {"hidden_act", "silu"},
            {"max_position_embeddings", c.max_context_width},
            {"rms_norm_eps", c.norm_epsilon},
            {"rope_theta", c.rope_theta},
            {"rope_scaling", rope_scaling(c.rope_scaling)}};
  if (mistral) {
    json["sliding_window"] = c.sliding_window ? Json(*c.sliding_window) : Json(nullptr);
  } else {
    json["attention_bias"] = json["mlp_bias"] = false;
  }
  json["tie_word_embeddings"] = c.tie_word_embeddings;
  json["initializer_range"] = c.initializer_range;
  return json;
}

}  // namespace

std::string_view hugging_face_model_type(ModelType type) {
  switch (type) {
    case ModelType::kLlamaV2:
    case ModelType::kLlamaV3: return "llama";
    case ModelType::kMistral: return "mistral";
    default: break;
  }
  throw UserError(
      cat("models of type ", name(type), " cannot be exchanged with Hugging Face's programs yet"));
}

std::string hugging_face_config_json(const ModelConfig& config) {
  return llama_json(config).dump(2) + "\n";
}

}  // namespace tessera
