#include "models/peft_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "models/build_model.h"
#include "models/hugging_face_keys.h"
#include "models/model_family.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = 1 << 20;

// Keys that change nothing of what a saved adapter computes: how it was first drawn, which layers
// were chosen (its tensors say that), what it was trained for and with.
constexpr std::string_view kHarmlessKeys[] = {
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "task_type",
    "inference_mode",
    "auto_mapping",
    "fan_in_fan_out",
    "loftq_config",
    "eva_config",
    "corda_config",
    "runtime_config",
    "peft_version",
    "megatron_config",
    "megatron_core",
    "qalora_group_size",
    "arrow_config",
    "lora_ga_config",
    "base_model_name_or_path",
    "revision",
};

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == 0 ||
         ((value.is_structured() || value.is_string()) && value.empty());
}

// Those that would change it, by what they stand for.
void refuse_variants(const HuggingFaceKeys& keys) {
  std::string type = keys.text("peft_type", "");
  if (type != "LORA")
    keys.refuse(cat("'peft_type' is '", type, "': only adapters of type LORA can be read"));
  if (keys.text("bias", "none") != "none") keys.refuse("'bias' must be none");
  // Others take a part of the first weights out of the model that is adapted.
  const Json* first = keys.find("init_lora_weights");
  if (first && !first->is_boolean() && *first != "gaussian" && *first != "orthogonal")
    keys.fail("init_lora_weights", "true, false, gaussian or orthogonal", *first);
  constexpr std::pair<const char*, const char*> kVariants[] = {
      {"use_dora", "DoRA"},
      {"use_qalora", "QALoRA"},
      {"lora_bias", "biases of its matrices"},
      {"rank_pattern", "ranks by layer"},
      {"alpha_pattern", "alphas by layer"},
      {"modules_to_save", "layers that are trained as a whole"},
      {"layer_replication", "layers that stand more than once"},
      {"trainable_token_indices", "trained embeddings of single tokens"},
      {"target_parameters", "parameters beside those of linear layers"},
      {"alora_invocation_tokens", "adapters that begin at a token"},
  };
  for (auto [key, meaning] : kVariants) {
    const Json* value = keys.find(key);
    if (value && !says_nothing(*value))
      keys.refuse(cat("'", key, "' (", meaning, ") is not supported"));
  }
}

}  // namespace

Lora parse_peft_config(std::string_view text, std::string_view where) {
  if (text.size() > kMaxConfigBytes) throw UserError(cat("'", where, "' is larger than 1 MiB"));
  const Json json = parse_shallow_json(text, where);
  if (!json.is_object()) throw UserError(cat("'", where, "' is not a JSON object"));
  HuggingFaceKeys keys(json, where);
  refuse_variants(keys);
  Lora lora;
  lora.rank = keys.integer("r", 8);
  if (lora.rank < 1 || lora.rank > 65536) keys.fail("r", "a rank of 1 to 65536", json["r"]);
  lora.alpha = keys.positive("lora_alpha", 8);
  lora.dropout = keys.real("lora_dropout", 0);
  if (lora.dropout < 0 || lora.dropout >= 1)
    keys.fail("lora_dropout", "a probability below 1", json["lora_dropout"]);
  lora.rank_stabilised = keys.boolean("use_rslora", false);
  std::vector<std::string_view> harmless(std::begin(kHarmlessKeys), std::end(kHarmlessKeys));
  for (const auto& [key, value] : json.items()) {
    if (says_nothing(value)) harmless.push_back(key);
  }
  keys.refuse_others(harmless);
  return lora;
}

std::string peft_config_json(const ModelConfig& model, std::string_view base_model) {
  const Lora& lora = model.lora;
  std::vector<std::string> all = linear_layers(model), adapted;
  std::ranges::copy_if(all, std::back_inserter(adapted),
                       [&](const std::string& layer) { return lora.adapts(layer); });
  const auto transposed = model_family(model.model_type).tensors.transposed;
  bool stored_transposed = std::ranges::any_of(adapted, [&](const std::string& layer) {
    return std::ranges::any_of(
        transposed, [&](std::string_view end) { return (layer + ".weight").ends_with(end); });
  });
  nlohmann::ordered_json json{{"peft_type", "LORA"}, {"task_type", "CAUSAL_LM"}};
  std::string_view name = base_model, revision;
  if (name.starts_with("hf://")) {
    name.remove_prefix(5);
    size_t at = name.rfind('@');
    if (at != std::string_view::npos) revision = name.substr(at + 1);
    name = name.substr(0, at);
  }
  json["base_model_name_or_path"] = nullptr;
  if (!name.empty()) json["base_model_name_or_path"] = name;
  json["revision"] = nullptr;
  if (!revision.empty()) json["revision"] = revision;
  json["r"] = lora.rank;
  json["lora_alpha"] = lora.alpha;
  if (lora.alpha == std::floor(lora.alpha) && lora.alpha < 1e15)
    json["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  json["lora_dropout"] = lora.dropout;
  json["use_rslora"] = lora.rank_stabilised;
  json["target_modules"] = targets_for(adapted, all);
  json["fan_in_fan_out"] = stored_transposed;
  json["bias"] = "none";
  json["modules_to_save"] = nullptr;
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
