#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_families.h"
#include "nn/lora.h"

namespace tessera {

// As in --model_type: "gpt_neox", "llama_v2".
std::string_view name(ModelType type);
// Inverse of name(), exact; UserError that lists the names for another word.
ModelType model_type_from_name(std::string_view text);

// How rotary frequencies differ from theta^(-2i/d).
enum class RopeScalingType {
  kNone,
  kLinear,   // all frequencies divided by `factor`
  kDynamic,  // the same as kNone within max_context_width; longer windows are refused
  kLlama3,   // Llama 3.1: long wavelengths divided by `factor`, a smooth ramp between two bounds
  kYarn,     // nn/rotary.h: YarnScaling, with cosines and sines multiplied by attention_factor
};

struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1.0;
  // kLlama3 only: wavelengths above original_max_position / low_freq_factor are stretched fully,
  // those below original_max_position / high_freq_factor not at all.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // kYarn only.
  double beta_fast = 32.0, beta_slow = 1.0, attention_factor = 1.0;
  bool truncate = true;
  int64_t original_max_position = 8192;  // kLlama3 and kYarn
  bool operator==(const RopeScaling&) const = default;
};

// The shape of one decoder-only model. Widths are numbers of elements.
struct ModelConfig {
  ModelType model_type = ModelType::kLlamaV2;
  int64_t vocab_size = 50432;
  int64_t hidden_width = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t num_key_value_heads = 12;
  int64_t head_dim = 64;
  int64_t intermediate_size = 11008;
  int64_t max_context_width = 2048;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::optional<int64_t> sliding_window;  // positions a token sees, itself included; none: all
  std::vector<bool> windowed_layers;      // which layers have the window; empty: all of them
  double rotary_pct = 1.0;                // share of each head that rotates; below 1: gpt_neox
  bool bias = false;                      // biases in linear and norm layers: gpt_neox, gpt2
  bool attention_bias = false;            // of queries, keys and values: qwen2
  bool attention_output_bias = false;     // of what attention gives back
  bool tanh_gelu = false;                 // GELU by its tanh formula, not the exact one: gpt2
  bool parallel_residual = false;         // attention and MLP read the same values: gpt_neox
  int64_t num_local_experts = 1;          // mixtral
  int64_t num_experts_per_tok = 1;        // mixtral
  // Dropout in training. attn_pdrop: of attention weights, every family; resid_pdrop: of what
  // enters the residual stream, gpt2 and gpt_neox; embd_pdrop: of the embeddings, gpt2 and
  // gpt_neox, there the same as resid_pdrop.
  double resid_pdrop = 0.0, embd_pdrop = 0.0, attn_pdrop = 0.0;
  // An id whose embedding gets no gradient where it is an input: families like Llama.
  std::optional<int64_t> padding_id;
  Lora lora;  // its parameters are not among those that are counted below
  bool operator==(const ModelConfig&) const = default;
};

// Norm epsilon, rotary base and scaling, tying, biases, activation, dropout and experts of a
// family; the shape is that of ModelConfig{}, with the derived fields of derive_shape().
ModelConfig family_defaults(ModelType type);

// Sets what follows from other fields: head_dim = hidden_width / num_heads, and intermediate_size
// where the family says so. UserError when the heads do not divide the width.
void derive_shape(ModelConfig& config);

// UserError, naming the option and both numbers, unless the shape can be built: positive, within
// bounds that keep every count inside 63 bits, key/value heads dividing heads, even head_dim,
// finite rates.
void check(const ModelConfig& config);

// Elements of each head that rotate: head_dim * rotary_pct, rounded down.
int64_t rotary_width(const ModelConfig& config);

// Positions that a token of this layer sees, itself included; 0: all.
int64_t layer_window(const ModelConfig& config, int64_t layer);

// The longest window of tokens that the model computes: max_context_width where positions are
// learned or rotary frequencies change behind it (kDynamic); none: any.
std::optional<int64_t> longest_window(const ModelConfig& config);

// Exact number of parameters, a tied matrix counted once. `config` must pass check().
int64_t parameter_count(const ModelConfig& config);

// A published model by name, such as llama3.1_8b; `-` and `_` are the same. UserError "Model {x}
// currently not supported." with the names otherwise.
ModelConfig preset_by_name(std::string_view text);
// preset_by_name() without the error.
std::optional<ModelConfig> find_preset(std::string_view text);
std::vector<std::string> preset_names();

// Sets hidden_width, num_layers, num_heads, key/value heads and intermediate_size of one of the
// sizes that the family has: 7b, 13b. UserError otherwise.
void apply_preset_size(ModelConfig& config, std::string_view size);

// The shape in a Hugging Face config.json of a class that a family has; `path` may be the folder
// that holds it. Absent keys take transformers' defaults; rope settings are read from
// `rope_scaling` and `rope_theta` or from the newer `rope_parameters`. max_context_width is
// max_position_embeddings. Every key is used, known to change nothing, or refused. UserError naming
// the file and key: unreadable, larger than 1 MiB, not JSON, wrong types, an architecture or
// variant that is not supported, keys that contradict each other, unknown keys.
ModelConfig read_hugging_face_config(const std::filesystem::path& path);
// The same from text; `where` stands in messages.
ModelConfig parse_hugging_face_config(std::string_view text, std::string_view where);

// The shape of a Llama in the params.json of Meta's own files, which read_hugging_face_config()
// takes where a folder has no config.json. It does not say how many positions there are (taken:
// those of the published model with such rope settings) nor, before Llama 3, how many tokens
// (taken: 32,000). UserError as above.
inline constexpr std::string_view kMetaParamsName = "params.json";
ModelConfig parse_meta_params(std::string_view text, std::string_view where);

// The inverse: a config.json that transformers reads as this model, with `rope_theta` and
// `rope_scaling` as all its versions know them. What is no shape (token ids, the dtype of weights)
// is not in it. UserError as hugging_face_model_type.
std::string hugging_face_config_json(const ModelConfig& config);
// The `model_type` of the family there: "llama", "gpt2". UserError for one that is not exchanged.
std::string_view hugging_face_model_type(ModelType type);

// Every field as a JSON object: what a checkpoint keeps of its model.
// model_config_from_json(model_config_json(c)) == c for every c that passes check().
std::string model_config_json(const ModelConfig& config);
// UserError: not JSON, larger than 1 MiB, a field that is missing, unknown or of another type, a
// shape that does not pass check().
ModelConfig model_config_from_json(std::string_view text);

}  // namespace tessera
