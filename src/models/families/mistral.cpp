#include <nlohmann/json.hpp>

#include "models/families/llama_like.h"

namespace tessera {
namespace {

// Mistral, and Ministral, which has a window in some layers.
GivenWidths read(const HuggingFaceKeys& keys, ModelConfig& config) {
  GivenWidths given = read_llama_like(keys,
                                      {.intermediate_size = 14336,
                                       .positions = 131072,
                                       .key_value_heads = 8,
                                       .null_key_value_heads = false},
                                      config);
  if (!keys.has("sliding_window")) config.sliding_window = 4096;
  if (keys.find("sliding_window")) config.sliding_window = keys.integer("sliding_window", 0);
  bool ministral = keys.has("layer_types") || keys.text("model_type", "") == "ministral";
  if (ministral && !given.head_dim) keys.refuse("'head_dim' is missing: Ministral needs it");
  read_layer_types(keys, config);
  return given;
}

constexpr HuggingFaceClass kClasses[] = {{"MistralForCausalLM", "mistral", read},
                                         {"MinistralForCausalLM", "ministral", read}};

void write(const ModelConfig& c, nlohmann::ordered_json& json) {
  write_llama_like(c, json);
  json["sliding_window"] = nullptr;
  if (c.sliding_window) json["sliding_window"] = *c.sliding_window;
  if (c.windowed_layers.empty()) return;
  json["architectures"] = {kClasses[1].name};
  json["model_type"] = kClasses[1].model_type;
  write_layer_types(c, json);
}

constexpr std::string_view kOptions[] = {"sliding_window"};

constexpr ModelPreset kPresets[] = {
    {.name = "mathstral_7b",
     .vocab = 32768,
     .hidden = 4096,
     .layers = 32,
     .heads = 32,
     .key_value_heads = 8,
     .intermediate = 14336,
     .context = 32768},
};

}  // namespace

// Mistral (Jiang et al. 2023): a Llama with an attention window.
constinit const ModelFamily families::kMistral{
    .type = ModelType::kMistral,
    .name = "mistral",
    .check = check_rotary_heads,
    .parameter_count = count_llama_like,
    .options = kOptions,
    .presets = kPresets,
    .lora_targets = kLlamaLoraTargets,
    .build = llama_like,
    .classes = kClasses,
    .write = write,
    .tensors = kLlamaTensors,
};

}  // namespace tessera
