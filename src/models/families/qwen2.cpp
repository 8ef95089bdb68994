#include <nlohmann/json.hpp>

#include "models/families/llama_like.h"

namespace tessera {
namespace {

void set_defaults(ModelConfig& c) {
  c.norm_epsilon = 1e-6;
  c.rope_theta = 1e6;
  c.attention_bias = true;
}

GivenWidths read(const HuggingFaceKeys& keys, ModelConfig& config) {
  GivenWidths given = read_llama_like(
      keys,
      {.vocab_size = 151936, .intermediate_size = 22016, .positions = 32768, .key_value_heads = 32},
      config);
  if (keys.has("head_dim") && !given.head_dim) keys.refuse("'head_dim' must not be null");
  read_qwen_window(keys, config);
  return given;
}

void write(const ModelConfig& c, nlohmann::ordered_json& json) {
  write_llama_like(c, json);
  write_qwen_window(c, json);
}

constexpr HuggingFaceClass kClasses[] = {{"Qwen2ForCausalLM", "qwen2", read}};

}  // namespace

// Qwen2 (Yang et al. 2024): a Llama with biases of queries, keys and values.
constinit const ModelFamily families::kQwen2{
    .type = ModelType::kQwen2,
    .name = "qwen2",
    .set_defaults = set_defaults,
    .check = check_rotary_heads,
    .parameter_count = count_llama_like,
    .lora_targets = kLlamaLoraTargets,
    .build = llama_like,
    .classes = kClasses,
    .write = write,
    .qwen2_tokenizer = true,
    .tensors = kLlamaTensors,
};

}  // namespace tessera
