// The shape of a Llama model in the params.json that Meta publishes with its own files of weights.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "models/hugging_face_keys.h"
#include "models/model_config.h"

namespace tessera {
namespace {

// What only those programs use.
constexpr std::string_view kNotShape[] = {"max_batch_size", "max_seq_len", "model_parallel_size"};

// The width that their code gives the MLP: two thirds of four times the model's, times a factor,
// rounded up to a multiple. Numbers are cut off to integers in between.
int64_t mlp_width(const HuggingFaceKeys& keys, int64_t width) {
  const int64_t multiple = keys.integer("multiple_of", 256);
  if (multiple < 1) keys.refuse("'multiple_of' must be above 0");
  int64_t mlp = 2 * (4 * width) / 3;
  const double factor = keys.positive("ffn_dim_multiplier", 1);
  if (factor > 64) keys.refuse("'ffn_dim_multiplier' must be at most 64");
  mlp = static_cast<int64_t>(factor * static_cast<double>(mlp));
  return (mlp + multiple - 1) / multiple * multiple;
}

int64_t positions(const ModelConfig& config) {
  if (config.rope_scaling.type == RopeScalingType::kLlama3) return 131072;  // 3.1 and 3.2
  if (config.rope_theta == 500000) return 8192;                             // 3
  if (config.rope_theta > 10000) return 16384;                              // Code Llama
  return config.norm_epsilon < 1e-5 ? 2048 : 4096;                          // 1 and 2
}

}  // namespace

ModelConfig parse_meta_params(std::string_view text, std::string_view where) {
  nlohmann::json json = parse_shallow_json(text, where);
  if (!json.is_object()) throw UserError(cat(where, ": not a JSON object"));
  HuggingFaceKeys keys(json, where);
  for (const char* key : {"dim", "n_layers", "n_heads"}) {
    if (!keys.find(key))
      keys.refuse(cat("'", key, "' is missing: is it the params.json of a Llama?"));
  }
  ModelConfig config = family_defaults(ModelType::kLlamaV2);
  config.hidden_width = keys.integer("dim", 0);
  config.num_layers = keys.integer("n_layers", 0);
  config.num_heads = keys.integer("n_heads", 0);
  config.num_key_value_heads = keys.integer("n_kv_heads", config.num_heads);
  config.norm_epsilon = keys.positive("norm_eps", 1e-5);
  config.rope_theta = keys.positive("rope_theta", 10000);
  // Files of Llama 1 and 2 say -1, those of Code Llama nothing: their programs ask the tokenizer.
  config.vocab_size = keys.integer("vocab_size", -1);
  if (config.vocab_size < 0) config.vocab_size = 32000;
  if (keys.boolean("use_scaled_rope", false)) {
    // The two small ones of 3.2 are stretched further than all of 3.1, and tied.
    const bool small = config.hidden_width < 4096;
    config.model_type = ModelType::kLlamaV3;
    config.rope_scaling.type = RopeScalingType::kLlama3;
    config.rope_scaling.factor = keys.positive("rope_scaling_factor", small ? 32 : 8);
    config.tie_word_embeddings = small;
  }
  config.max_context_width = positions(config);
  try {
    derive_shape(config);
    config.intermediate_size = mlp_width(keys, config.hidden_width);
    check(config);
  } catch (const UserError& error) {
    keys.refuse(error.what());
  }
  for (const char* key : {"lora_args", "quantization_args"}) {
    if (keys.find(key)) keys.refuse(cat("'", key, "': only weights as they were trained are read"));
  }
  keys.refuse_others(kNotShape);
  return config;
}

}  // namespace tessera
