#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/families/llama_like.h"

namespace tessera {
namespace {

// transformers wants it though 'head_dim' may say another width.
void check_multiple(const HuggingFaceKeys& keys, const ModelConfig& config) {
  if (config.num_heads < 1 || config.hidden_width % config.num_heads == 0) return;
  keys.refuse(cat("'num_attention_heads' must divide 'hidden_size': ", config.hidden_width,
                  " is not a multiple of ", config.num_heads));
}

GivenWidths read(const HuggingFaceKeys& keys, ModelConfig& config) {
  GivenWidths given = read_llama_like(keys, {}, config);
  RopeScalingType scaling = config.rope_scaling.type;
  if (scaling == RopeScalingType::kDynamic || scaling == RopeScalingType::kLlama3)
    config.model_type = ModelType::kLlamaV3;
  config.attention_bias = config.attention_output_bias = keys.boolean("attention_bias", false);
  if (keys.boolean("mlp_bias", false)) keys.refuse("'mlp_bias' is not supported");
  check_multiple(keys, config);
  return given;
}

void write(const ModelConfig& c, nlohmann::ordered_json& json) {
  write_llama_like(c, json);
  json["attention_bias"] = c.attention_bias;
  json["mlp_bias"] = false;
}

constexpr HuggingFaceClass kClasses[] = {{"LlamaForCausalLM", "llama", read}};

constexpr ModelSize kSizes[] = {
    {.name = "7b",
     .hidden = 4096,
     .layers = 32,
     .heads = 32,
     .key_value_heads = 32,
     .intermediate = 11008},
    {.name = "13b",
     .hidden = 5120,
     .layers = 40,
     .heads = 40,
     .key_value_heads = 40,
     .intermediate = 13824},
    {.name = "70b",
     .hidden = 8192,
     .layers = 80,
     .heads = 64,
     .key_value_heads = 8,
     .intermediate = 28672},
};

constexpr ModelPreset kV2Presets[] = {
    {.name = "llama2_7b",
     .vocab = 32000,
     .hidden = 4096,
     .layers = 32,
     .heads = 32,
     .key_value_heads = 32,
     .intermediate = 11008,
     .context = 4096},
    {.name = "llama2_13b",
     .vocab = 32000,
     .hidden = 5120,
     .layers = 40,
     .heads = 40,
     .key_value_heads = 40,
     .intermediate = 13824,
     .context = 4096},
    {.name = "llama2_70b",
     .vocab = 32000,
     .hidden = 8192,
     .layers = 80,
     .heads = 64,
     .key_value_heads = 8,
     .intermediate = 28672,
     .context = 4096},
};

// 131072 positions by the stretch of the frequencies.
constexpr ModelPreset kV3Presets[] = {
    {.name = "llama3.1_8b",
     .vocab = 128256,
     .hidden = 4096,
     .layers = 32,
     .heads = 32,
     .key_value_heads = 8,
     .intermediate = 14336,
     .context = 8192,
     .theta = 5e5,
     .llama3_factor = 8},
    {.name = "llama3.1_70b",
     .vocab = 128256,
     .hidden = 8192,
     .layers = 80,
     .heads = 64,
     .key_value_heads = 8,
     .intermediate = 28672,
     .context = 8192,
     .theta = 5e5,
     .llama3_factor = 8},
    {.name = "llama3.2_1b",
     .vocab = 128256,
     .hidden = 2048,
     .layers = 16,
     .heads = 32,
     .key_value_heads = 8,
     .intermediate = 8192,
     .context = 8192,
     .theta = 5e5,
     .llama3_factor = 32,
     .tied = true},
    {.name = "llama3.2_3b",
     .vocab = 128256,
     .hidden = 3072,
     .layers = 28,
     .heads = 24,
     .key_value_heads = 8,
     .intermediate = 8192,
     .context = 8192,
     .theta = 5e5,
     .llama3_factor = 32,
     .tied = true},
};

void set_v3_defaults(ModelConfig& c) {
  c.rope_scaling = {.type = RopeScalingType::kDynamic, .factor = 2.0};
}

}  // namespace

constinit const ModelFamily families::kLlamaV2{
    .type = ModelType::kLlamaV2,
    .name = "llama_v2",
    .check = check_rotary_heads,
    .parameter_count = count_llama_like,
    .presets = kV2Presets,
    .sizes = kSizes,
    .lora_targets = kLlamaLoraTargets,
    .build = llama_like,
    .classes = kClasses,
    .write = write,
    .tensors = kLlamaTensors,
};

// The same with scaled frequencies. A config.json is read as the second where it has them.
constinit const ModelFamily families::kLlamaV3{
    .type = ModelType::kLlamaV3,
    .name = "llama_v3",
    .set_defaults = set_v3_defaults,
    .check = check_rotary_heads,
    .parameter_count = count_llama_like,
    .presets = kV3Presets,
    .sizes = kSizes,
    .lora_targets = kLlamaLoraTargets,
    .build = llama_like,
    .classes = kClasses,
    .write = write,
    .tensors = kLlamaTensors,
};

}  // namespace tessera
