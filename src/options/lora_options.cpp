#include "options/lora_options.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "models/build_model.h"
#include "models/model_family.h"
#include "models/peft_config.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

constexpr std::string_view kOfAdapter[] = {"lora_rank", "lora_alpha", "lora_rank_stabilised",
                                           "lora_targets"};

// The last words of the names of layers, each once.
std::vector<std::string> last_words(const std::vector<std::string>& layers) {
  std::vector<std::string> words;
  for (const std::string& layer : layers) {
    std::string word = layer.substr(layer.rfind('.') + 1);
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return words;
}

// What there is to be named, for messages.
std::string all_names(const std::vector<std::string>& layers) {
  if (layers.empty()) return "none";
  return cat(join(last_words(layers), ", "), " (", layers.front(), " and so on)");
}

// As those of another list that names the same layers.
std::vector<std::string> checked_targets(const Lora& lora, const ModelConfig& model) {
  const std::vector<std::string> layers = linear_layers(model);
  if (layers.empty()) {
    throw UserError(
        cat("--lora_rank: models of type ", name(model.model_type), " have no adapters yet"));
  }
  for (const std::string& target : lora.targets) {
    if (std::ranges::any_of(layers, [&](const auto& l) { return names_layer(target, l); }))
      continue;
    std::vector<std::string> candidates = last_words(layers);
    candidates.emplace_back(kAllLinear);
    std::string close = target.size() <= 200 ? nearest(target, candidates) : "";
    throw UserError(cat("--lora_targets: no linear layer of this model is called '",
                        target.substr(0, 200), "'",
                        close.empty() ? "" : cat("; did you mean ", close, "?"), "; there are ",
                        all_names(layers), ", and ", kAllLinear));
  }
  std::vector<std::string> adapted;
  std::ranges::copy_if(layers, std::back_inserter(adapted),
                       [&](const std::string& layer) { return lora.adapts(layer); });
  return targets_for(adapted, layers);
}

// The layers of which an adapter has an A matrix. UserError where one has a B matrix alone.
std::vector<std::string> adapted_layers(const fs::path& file) {
  const SafetensorsFile tensors(file);
  auto layers_of = [&](std::string_view end) {
    std::vector<std::string> layers;
    for (const TensorInfo& tensor : tensors.tensors()) {
      std::string_view layer = tensor.name;
      if (!layer.starts_with(kPeftPrefix) || !layer.ends_with(end)) continue;
      layer.remove_prefix(kPeftPrefix.size());
      layer.remove_suffix(end.size());
      layers.emplace_back(layer);
    }
    return layers;
  };
  std::vector<std::string> layers = layers_of(kA);
  for (const std::string& layer : layers_of(kB)) {
    if (std::ranges::find(layers, layer) != layers.end()) continue;
    throw UserError(cat("'", file.string(), "' has ", kPeftPrefix, layer.substr(0, 200), kB,
                        ", but not the ", kA.substr(1), " beside it: save the adapter again"));
  }
  return layers;
}

}  // namespace

std::string describe(const Lora& lora) {
  if (lora.rank == 0) return "no adapters";
  return cat("adapters of rank ", lora.rank, " on ", join(lora.targets, ", "));
}

Lora lora_of_adapter(const fs::path& directory, const ModelConfig& model) {
  const fs::path config = directory / kPeftConfigName, weights = directory / kPeftWeightsName;
  for (const fs::path& file : {config, weights}) {
    if (is_file(file)) continue;
    bool pickled = is_there(directory / "adapter_model.bin");
    throw UserError(cat("--lora_adapter: there is no '", file.string(), "'",
                        pickled ? ", and of adapters adapter_model.bin is not read: load it "
                                  "with PEFT and save it with save_pretrained()"
                                : ": it takes the directory of an adapter that PEFT has saved"));
  }
  Lora lora = parse_peft_config(read_file(config), config.string());
  const std::vector<std::string> all = linear_layers(model), has = adapted_layers(weights);
  if (has.empty())
    throw UserError(
        cat("'", weights.string(), "' has no tensor ", kPeftPrefix, "LAYER.lora_A.weight"));
  std::vector<std::string> adapted;  // in the order of the model
  std::ranges::copy_if(all, std::back_inserter(adapted), [&](const std::string& layer) {
    return std::ranges::find(has, layer) != has.end();
  });
  for (const std::string& layer : has) {
    if (std::ranges::find(all, layer) != all.end()) continue;
    throw UserError(cat("'", weights.string(), "' adapts '", layer.substr(0, 200),
                        "', which is no linear layer of this ", name(model.model_type),
                        " model; those are ", all_names(all)));
  }
  lora.targets = targets_for(adapted, all);
  return lora;
}

void apply_lora_options(const ParsedOptions& parsed, ModelConfig& model) {
  const RunConfig& c = parsed.config;
  if (!c.lora_adapter.empty()) {
    for (std::string_view option : kOfAdapter) {
      if (parsed.is_given(option))
        throw UsageError(
            cat("--", option, " is that of --lora_adapter ", c.lora_adapter, ": leave it out"));
    }
    model.lora = lora_of_adapter(c.lora_adapter, model);
    if (parsed.is_given("lora_dropout")) model.lora.dropout = c.lora_dropout;
    return;
  }
  if (c.lora_rank == 0) {
    for (std::string_view option :
         {"lora_alpha", "lora_rank_stabilised", "lora_targets", "lora_dropout"}) {
      if (parsed.is_given(option)) throw UsageError(cat("--", option, " needs --lora_rank"));
    }
    return;
  }
  Lora& lora = model.lora;
  lora.rank = c.lora_rank;
  lora.alpha = c.lora_alpha.value_or(2 * static_cast<double>(c.lora_rank));
  lora.rank_stabilised = c.lora_rank_stabilised;
  lora.dropout = c.lora_dropout;
  lora.targets = c.lora_targets;
  if (lora.targets.empty()) {
    const auto usual = model_family(model.model_type).lora_targets;
    lora.targets.assign(usual.begin(), usual.end());
  }
  lora.targets = checked_targets(lora, model);
}

}  // namespace tessera
