#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "models/hugging_face_keys.h"
#include "models/model_config.h"
#include "models/model_ends.h"

namespace tessera {

// A published model. The context is the training window, not the longest position that a later
// stretch of the frequencies allows.
struct ModelPreset {
  std::string_view name;
  int64_t vocab, hidden, layers, heads, key_value_heads;
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t intermediate, context;
  double theta = 1e4;
  double llama3_factor = 0;  // 0: the family's scaling
  bool tied = false, bias = false;
};

// A shape that --model_size names.
struct ModelSize {
  std::string_view name;
  int64_t hidden, layers, heads, key_value_heads, intermediate;
};

// Widths in a config.json that derive_shape() would derive from others.
struct GivenWidths {
  std::optional<int64_t> head_dim, mlp;
};

// A class of transformers whose config.json describes a model of a family.
struct HuggingFaceClass {
  std::string_view name, model_type;  // "GPT2LMHeadModel", "gpt2"
  // Reads all keys but those that every family has. `config` has the family's defaults.
  GivenWidths (*read)(const HuggingFaceKeys& keys, ModelConfig& config);
};

// Weight files hold tensors under the names of parameters. What else they are like:
struct TensorNames {
  std::string_view prefix;             // of all names but the output matrix's
  std::string_view embedding, output;  // of the input and the output matrix
  // Ends of names: of tensors that are no weights, of matrices that are stored as [in, out].
  std::span<const std::string_view> buffers, transposed = {};
  std::string_view output_in_memory = {};  // of the output matrix in a model of transformers 5, if
                                           // that is another than in its files
};

// Everything that the program knows about one family of models. What is left out does not hold for
// the family or is as in ModelConfig{}; docs/models.md goes through it.
struct ModelFamily {
  ModelType type;
  std::string_view name;  // of --model_type

  // The configuration. Defaults are set on ModelConfig{}, the check is part of tessera::check().
  void (*set_defaults)(ModelConfig& config) = nullptr;
  void (*check)(const ModelConfig& config);
  int64_t (*parameter_count)(const ModelConfig& config);
  int64_t mlp_widths = 0;          // the MLP is so many times as wide as the model; 0: any width
  bool learned_positions = false;  // there are no others than max_context_width
  bool always_tied = false;        // --tie_word_embeddings says nothing
  std::span<const std::string_view> options = {};  // that not every family has
  std::span<const ModelPreset> presets = {};
  std::span<const ModelSize> sizes = {};

  // What PEFT adapts of it unless it is told.
  std::span<const std::string_view> lora_targets = {};

  // The forward pass of one device (model_ends.h). Null: such models are counted, not run.
  ModelGraph (*build)(const ModelConfig& config, int64_t batch, int64_t length,
                      ModelHead head) = nullptr;

  // Exchange with transformers. Files are written as the first class; none: not exchanged. A class
  // that several families have is read as the first of these.
  std::span<const HuggingFaceClass> classes = {};
  void (*write)(const ModelConfig& config, nlohmann::ordered_json& json) = nullptr;
  // Gives the model what transformers' always has; parameters that this adds are zeros.
  void (*complete)(ModelConfig& config) = nullptr;
  bool qwen2_tokenizer = false;  // its tokenizer is read as Qwen2's there, whatever files say
  TensorNames tensors = {};
};

const ModelFamily& model_family(ModelType type);

// Checks of heads, for families to choose from. UserError: an odd head size, which cannot rotate;
// fewer key/value heads than heads, or heads that do not make up the width of the model.
void check_rotary_heads(const ModelConfig& config);
void check_plain_heads(const ModelConfig& config);

}  // namespace tessera
