#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "models/model_config.h"

namespace tessera {
namespace {

struct Preset {
  std::string_view name;
  ModelType type;
  int64_t vocab, hidden, layers, heads, key_value_heads, intermediate, context;
  double theta;
  double llama3_factor;  // 0: the family's scaling
  bool tied;
};

constexpr auto kV2 = ModelType::kLlamaV2;
constexpr auto kV3 = ModelType::kLlamaV3;
constexpr auto kGpt2 = ModelType::kGpt2;

// The published models. The context is the training window, not the longest position that a later
// stretch of the frequencies allows (131072 for Llama 3.1 and 3.2).
constexpr std::array<Preset, 13> kPresets{{
    {"llama2_7b", kV2, 32000, 4096, 32, 32, 32, 11008, 4096, 1e4, 0, false},
    {"llama2_13b", kV2, 32000, 5120, 40, 40, 40, 13824, 4096, 1e4, 0, false},
    {"llama2_70b", kV2, 32000, 8192, 80, 64, 8, 28672, 4096, 1e4, 0, false},
    {"llama3.1_8b", kV3, 128256, 4096, 32, 32, 8, 14336, 8192, 5e5, 8, false},
    {"llama3.1_70b", kV3, 128256, 8192, 80, 64, 8, 28672, 8192, 5e5, 8, false},
    {"llama3.2_1b", kV3, 128256, 2048, 16, 32, 8, 8192, 8192, 5e5, 32, true},
    {"llama3.2_3b", kV3, 128256, 3072, 28, 24, 8, 8192, 8192, 5e5, 32, true},
    {"mathstral_7b", ModelType::kMistral, 32768, 4096, 32, 32, 8, 14336, 32768, 1e4, 0, false},
    {"mixtral_8x7b", ModelType::kMixtral, 32000, 4096, 32, 32, 8, 14336, 32768, 1e6, 0, false},
    {"gpt2", kGpt2, 50257, 768, 12, 12, 12, 3072, 1024, 1e4, 0, true},
    {"gpt2_medium", kGpt2, 50257, 1024, 24, 16, 16, 4096, 1024, 1e4, 0, true},
    {"gpt2_large", kGpt2, 50257, 1280, 36, 20, 20, 5120, 1024, 1e4, 0, true},
    {"gpt2_xl", kGpt2, 50257, 1600, 48, 25, 25, 6400, 1024, 1e4, 0, true},
}};

struct Size {
  std::string_view name;
  int64_t hidden, layers, heads, key_value_heads, intermediate;
  bool gpt_neox_only;
};

constexpr std::array<Size, 5> kSizes{{
    {"7b", 4096, 32, 32, 32, 11008, false},
    {"13b", 5120, 40, 40, 40, 13824, false},
    {"20b", 6144, 44, 64, 64, 24576, true},
    {"65b", 8192, 80, 64, 64, 32768, true},
    {"70b", 8192, 80, 64, 8, 28672, false},
}};

std::string normal(std::string_view text) {
  std::string s(text);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

ModelConfig build(const Preset& preset) {
  ModelConfig config = family_defaults(preset.type);
  config.vocab_size = preset.vocab;
  config.hidden_width = preset.hidden;
  config.num_layers = preset.layers;
  config.num_heads = preset.heads;
  config.num_key_value_heads = preset.key_value_heads;
  config.intermediate_size = preset.intermediate;
  config.max_context_width = preset.context;
  config.rope_theta = preset.theta;
  if (preset.llama3_factor > 0) {
    config.rope_scaling = {.type = RopeScalingType::kLlama3, .factor = preset.llama3_factor};
  }
  config.tie_word_embeddings = preset.tied;
  config.bias = preset.type == kGpt2;  // the published weights have biases
  derive_shape(config);
  check(config);
  return config;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::optional<ModelConfig> find_preset(std::string_view text) {
  for (const Preset& preset : kPresets) {
    if (preset.name == normal(text)) return build(preset);
  }
  return std::nullopt;
}

ModelConfig preset_by_name(std::string_view text) {
  if (auto preset = find_preset(text)) return *preset;
  std::vector<std::string> names = preset_names(), alike;
  const std::string wanted = lower(normal(text));
  const size_t at = std::min(wanted.rfind('_'), wanted.size());
  std::string family = wanted.substr(0, at);
  std::erase(family, '_');
  // "llama-3-8b" is rather llama3.1_8b than llama2_7b.
  std::ranges::copy_if(names, std::back_inserter(alike), [&](const std::string& name) {
    return name.starts_with(family) && name.ends_with(wanted.substr(at));
  });
  std::string close = nearest(wanted, alike.empty() ? names : alike);
  throw UserError(cat("Model ", text, " currently not supported.",
                      close.empty() ? "" : cat(" Did you mean ", close, "?"),
                      " Supported: ", join(names, ", ")));
}

void apply_preset_size(ModelConfig& config, std::string_view size) {
  bool neox = config.model_type == ModelType::kGptNeox;
  bool llama = config.model_type == kV2 || config.model_type == kV3;
  std::vector<std::string> names;
  for (const Size& s : kSizes) names.emplace_back(s.name);
  for (const Size& s : kSizes) {
    if (s.name != size) continue;
    if (!neox && (s.gpt_neox_only || !llama)) {
      throw UserError(
          cat("--model_size ", size, " is not a size of ", name(config.model_type),
              ": give --hidden_width, --num_layers, --num_heads and --intermediate_size",
              s.gpt_neox_only ? ", or --model_type gpt_neox" : ""));
    }
    config.hidden_width = s.hidden;
    config.num_layers = s.layers;
    config.num_heads = s.heads;
    config.num_key_value_heads = neox ? s.heads : s.key_value_heads;
    config.intermediate_size = s.intermediate;
    derive_shape(config);
    return;
  }
  throw UserError(cat("--model_size '", size, "' is not known; known are ", join(names, ", ")));
}

}  // namespace tessera
