#include "hub/fms_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 3> kAttention = {"self_attn.q_proj", "self_attn.k_proj",
                                                        "self_attn.v_proj"};
constexpr std::array<std::string_view, 3> kInputs = {"query", "key", "value"};
constexpr std::array<std::string_view, 2> kGate = {"mlp.gate_proj", "mlp.up_proj"};
constexpr std::array<std::string_view, 2> kGateThere = {"wg", "w1"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOfLayer{{
    {"self_attn.o_proj", "attn.dense"},
    {"mlp.down_proj", "ff_sub_layer.w2"},
    {"input_layernorm", "ln"},
    {"post_attention_layernorm", "ff_ln"},
}};

}  // namespace

std::optional<FmsTensor> fms_tensor_of(std::string_view parameter, const FmsForm& form) {
  const std::string base = form.has_base ? "base_model." : "";
  auto alone = [&](std::string name) {
    return FmsTensor{std::move(name), {std::string(parameter)}, false};
  };
  if (parameter == "model.embed_tokens.weight")
    return alone(form.has_base ? "base_model.embedding.weight" : "shared.emb.weight");
  if (parameter == "lm_head.weight")
    return alone(form.has_base ? "head.weight" : "shared.head.weight");
  if (parameter == "model.norm.weight") return alone(base + "dec_norm.weight");

  // "model.layers.3." "self_attn.q_proj" ".weight"
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = parameter.find('.', kLayers.size()), end = parameter.rfind('.');
  if (!parameter.starts_with(kLayers) || dot >= end) return {};
  const std::string_view before = parameter.substr(0, dot + 1), kind = parameter.substr(end),
                         module = parameter.substr(dot + 1, end - dot - 1);
  const std::string layer = cat(base, before.substr(std::string_view("model.").size()));
  for (auto [ours, theirs] : kOfLayer)
    if (module == ours) return alone(cat(layer, theirs, kind));
  auto one_of = [&](const auto& ours, const auto& theirs, bool fused, const std::string& place,
                    std::string_view together) -> std::optional<FmsTensor> {
    const auto found = std::ranges::find(ours, module);
    if (found == ours.end()) return {};
    const auto number = static_cast<size_t>(found - ours.begin());
    FmsTensor tensor = alone(cat(layer, place, fused ? together : theirs[number], kind));
    if (!fused) return tensor;
    tensor.parameters.clear();
    for (std::string_view name : ours) tensor.parameters.push_back(cat(before, name, kind));
    return tensor;
  };
  const std::string inputs = form.fuses_attention || form.has_in_proj ? "attn.in_proj." : "attn.";
  if (auto found = one_of(kAttention, kInputs, form.fuses_attention, inputs, "qkv_fused")) {
    found->interleaved = module != kAttention[2];
    return found;
  }
  return one_of(kGate, kGateThere, form.fuses_mlp, "ff_sub_layer.", "wg1_fused");
}

}  // namespace tessera
