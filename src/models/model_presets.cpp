#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "models/model_family.h"

namespace tessera {
namespace {

std::string normal(std::string_view text) {
  std::string s(text);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

ModelConfig build(ModelType family, const ModelPreset& preset) {
  ModelConfig config = family_defaults(family);
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
  config.bias = preset.bias;
  derive_shape(config);
  if (preset.head_dim > 0) config.head_dim = preset.head_dim;
  check(config);
  return config;
}

const ModelSize* find_size(const ModelFamily& family, std::string_view name) {
  auto found = std::ranges::find(family.sizes, name, &ModelSize::name);
  return found == family.sizes.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelFamily* family : kModelFamilies) {
    for (const ModelPreset& preset : family->presets) names.emplace_back(preset.name);
  }
  return names;
}

std::optional<ModelConfig> find_preset(std::string_view text) {
  for (const ModelFamily* family : kModelFamilies) {
    for (const ModelPreset& preset : family->presets) {
      if (preset.name == normal(text)) return build(family->type, preset);
    }
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
  const ModelFamily& family = model_family(config.model_type);
  if (const ModelSize* s = find_size(family, size)) {
    config.hidden_width = s->hidden;
    config.num_layers = s->layers;
    config.num_heads = s->heads;
    config.num_key_value_heads = s->key_value_heads;
    config.intermediate_size = s->intermediate;
    return derive_shape(config);
  }
  std::vector<std::string> names, owners;
  for (const ModelFamily* other : kModelFamilies) {
    if (find_size(*other, size)) owners.emplace_back(other->name);
    for (const ModelSize& s : other->sizes) {
      if (std::ranges::find(names, s.name) == names.end()) names.emplace_back(s.name);
    }
  }
  if (owners.empty())
    throw UserError(cat("--model_size '", size, "' is not known; known are ", join(names, ", ")));
  throw UserError(cat("--model_size ", size, " is not a size of ", family.name,
                      ": give --hidden_width, --num_layers, --num_heads and --intermediate_size",
                      owners.size() == 1 ? cat(", or --model_type ", owners[0]) : ""));
}

}  // namespace tessera
