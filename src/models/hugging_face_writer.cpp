#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "models/model_config.h"

// The inverse of hugging_face_config.cpp.
namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json rope_scaling(const RopeScaling& s) {
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

Json layer_types(const ModelConfig& c) {
  Json types = Json::array();
  for (int64_t l = 0; l < c.num_layers; ++l)
    types.push_back(layer_window(c, l) > 0 ? "sliding_attention" : "full_attention");
  return types;
}

// Llama, Mistral, Ministral and Qwen2.
void write_llama(const ModelConfig& c, Json& json) {
  json.update({{"hidden_size", c.hidden_width},
               {"num_hidden_layers", c.num_layers},
               {"num_attention_heads", c.num_heads},
               {"num_key_value_heads", c.num_key_value_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.intermediate_size},
               {"hidden_act", "silu"},
               {"attention_dropout", c.attn_pdrop},
               {"max_position_embeddings", c.max_context_width},
               {"rms_norm_eps", c.norm_epsilon},
               {"rope_theta", c.rope_theta},
               {"rope_scaling", rope_scaling(c.rope_scaling)}});
  if (c.padding_id) json["pad_token_id"] = *c.padding_id;
  Json window = c.sliding_window ? Json(*c.sliding_window) : Json(nullptr);
  if (c.model_type == ModelType::kMistral) {
    json["sliding_window"] = window;
    if (c.windowed_layers.empty()) return;
    json["architectures"] = {"MinistralForCausalLM"};  // a Mistral of which some layers have it
    json["model_type"] = "ministral";
    json["layer_types"] = layer_types(c);
  } else if (c.model_type == ModelType::kQwen2) {
    json["use_sliding_window"] = c.sliding_window.has_value();
    json["sliding_window"] = window;
    json["max_window_layers"] = c.sliding_window ? 0 : c.num_layers;  // those before it have none
    if (!c.windowed_layers.empty()) json["layer_types"] = layer_types(c);
  } else {
    json["attention_bias"] = c.attention_bias;
    json["mlp_bias"] = false;
  }
}

void write_gpt2(const ModelConfig& c, Json& json) {
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

void write_gpt_neox(const ModelConfig& c, Json& json) {
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
               {"rope_scaling", rope_scaling(c.rope_scaling)},
               {"attention_bias", true}});
}

struct Family {
  ModelType type;
  std::string_view class_name, model_type;
  void (*write)(const ModelConfig&, Json&);
};

constexpr Family kFamilies[] = {
    {ModelType::kLlamaV2, "LlamaForCausalLM", "llama", write_llama},
    {ModelType::kLlamaV3, "LlamaForCausalLM", "llama", write_llama},
    {ModelType::kMistral, "MistralForCausalLM", "mistral", write_llama},
    {ModelType::kQwen2, "Qwen2ForCausalLM", "qwen2", write_llama},
    {ModelType::kGpt2, "GPT2LMHeadModel", "gpt2", write_gpt2},
    {ModelType::kGptNeox, "GPTNeoXForCausalLM", "gpt_neox", write_gpt_neox},
};

const Family& family_of(ModelType type) {
  for (const Family& family : kFamilies) {
    if (family.type == type) return family;
  }
  throw UserError(cat("models of type ", name(type), " cannot be exchanged with transformers yet"));
}

}  // namespace

std::string_view hugging_face_model_type(ModelType type) { return family_of(type).model_type; }

std::string hugging_face_config_json(const ModelConfig& config) {
  const Family& family = family_of(config.model_type);
  Json json{{"architectures", {family.class_name}},
            {"model_type", family.model_type},
            {"vocab_size", config.vocab_size}};
  family.write(config, json);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  return json.dump(2) + "\n";
}

}  // namespace tessera
