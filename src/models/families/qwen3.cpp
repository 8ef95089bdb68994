#include <nlohmann/json.hpp>

#include "models/families/llama_like.h"

namespace tessera {
namespace {

void set_defaults(ModelConfig& c) {
  c.norm_epsilon = 1e-6;
  c.rope_theta = 1e6;
}

ModelGraph build(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  return llama_like(config, batch, length, head, /*head_norms=*/true);
}

int64_t count(const ModelConfig& c) {
  int64_t head_norms = 2 * c.head_dim;
  return count_llama_like(c) + c.num_layers * head_norms;
}

GivenWidths read(const HuggingFaceKeys& keys, ModelConfig& config) {
  read_llama_like(
      keys,
      {.vocab_size = 151936, .intermediate_size = 22016, .positions = 32768, .key_value_heads = 32},
      config);
  config.attention_bias = config.attention_output_bias = keys.boolean("attention_bias", false);
  read_qwen_window(keys, config);
  return {.head_dim = keys.integer("head_dim", 128)};
}

void write(const ModelConfig& c, nlohmann::ordered_json& json) {
  write_llama_like(c, json);
  json["attention_bias"] = c.attention_bias;
  write_qwen_window(c, json);
}

constexpr HuggingFaceClass kClasses[] = {{"Qwen3ForCausalLM", "qwen3", read}};

constexpr ModelPreset published(std::string_view name, int64_t hidden, int64_t layers,
                                int64_t heads, int64_t intermediate, bool tied) {
  return {.name = name,
          .vocab = 151936,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .key_value_heads = 8,
          .head_dim = 128,
          .intermediate = intermediate,
          .context = 40960,
          .theta = 1e6,
          .tied = tied};
}
constexpr ModelPreset kPresets[] = {
    published("qwen3_0.6b", 1024, 28, 16, 3072, true),
    published("qwen3_1.7b", 2048, 28, 16, 6144, true),
    published("qwen3_4b", 2560, 36, 32, 9728, true),
    published("qwen3_8b", 4096, 36, 32, 12288, false),
    published("qwen3_14b", 5120, 40, 40, 17408, false),
    published("qwen3_32b", 5120, 64, 64, 25600, false),
};

}  // namespace

// Qwen3 (Yang et al. 2025), the dense models: a Llama with norms of each head's queries and keys.
// A head is as wide as a config.json says, without regard to the width of the model.
constinit const ModelFamily families::kQwen3{
    .type = ModelType::kQwen3,
    .name = "qwen3",
    .set_defaults = set_defaults,
    .check = check_rotary_heads,
    .parameter_count = count,
    .presets = kPresets,
    .lora_targets = kLlamaLoraTargets,
    .build = build,
    .classes = kClasses,
    .write = write,
    .tensors = kLlamaTensors,
};

}  // namespace tessera
