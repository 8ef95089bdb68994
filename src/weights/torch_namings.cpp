// Under which names, and where in their tensors, parameters may be in a state of PyTorch's.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "hub/fms_names.h"
#include "models/model_family.h"
#include "weights/torch_training_state.h"

namespace tessera {

std::vector<TorchTrainingState::Naming> TorchTrainingState::namings() const {
  const TensorNames& family = model_family(model_.model_type).tensors;
  std::vector<Naming> all(1);
  Naming bare;
  for (const Parameter& p : parameters_) {
    all[0].places.push_back({p.name});
    const bool cut = p.name.starts_with(family.prefix);
    bare.places.push_back({cut ? p.name.substr(family.prefix.size()) : p.name});
  }
  all[0].head = bare.head = family.output;
  if (!family.prefix.empty()) all.push_back(std::move(bare));
  if (!family.output_in_memory.empty()) {
    for (size_t i = 0, in_files = all.size(); i < in_files; ++i) {
      Naming& naming = all.emplace_back(all[i]);
      for (Place& place : naming.places)
        if (place.name == naming.head) place.name = family.output_in_memory;
      naming.head = family.output_in_memory;
    }
  }
  for (MetaForm form : {MetaForm::kMeta, MetaForm::kTorchtitan})
    if (auto meta = meta_naming(form)) all.push_back(std::move(*meta));
  if (auto fms = fms_naming()) all.push_back(std::move(*fms));
  return all;
}

std::optional<TorchTrainingState::Naming> TorchTrainingState::meta_naming(MetaForm form) const {
  Naming naming;
  for (const Parameter& p : parameters_) {
    const auto name = meta_name_of(p.name, form);
    if (!name) return {};
    naming.places.push_back({name->name, 0, 0, name->interleaved});
  }
  naming.head = meta_name_of(model_family(model_.model_type).tensors.output, form)->name;
  if (form == MetaForm::kTorchtitan) fuse_kept(naming);
  return naming;
}

// Rows of torchtitan's matrix: the heads of queries that share keys and values, keys, values; the
// next ones.
void TorchTrainingState::fuse_kept(Naming& naming) const {
  constexpr std::string_view kFused = ".qkv_linear.wqkv.weight", kInputs = ".qkv_linear.w";
  const bool is_there = std::ranges::any_of(saved_name_of_, [&](const auto& names) {
    return names.first.find(cat(kFused, ".")) != std::string::npos;
  });
  if (!is_there) return;
  naming.kept = naming.places;
  const int64_t head = model_.head_dim, shared = model_.num_heads / model_.num_key_value_heads;
  for (Place& place : naming.kept) {
    const size_t at = place.name.find(kInputs);
    if (at == place.name.npos) continue;
    const char kind = place.name[at + kInputs.size()];  // "wq.weight"
    place.name.replace(at, place.name.npos, kFused);
    place.period = (shared + 2) * head;
    place.rows = place.period * model_.num_key_value_heads;
    place.run = kind == 'q' ? shared * head : head;
    place.first_row = kind == 'q' ? 0 : (kind == 'k' ? shared : shared + 1) * head;
  }
}

// Of the form that the names which are there have.
std::optional<TorchTrainingState::Naming> TorchTrainingState::fms_naming() const {
  auto is_there = [&](std::string_view ending) { return !prefixes_of(ending).empty(); };
  FmsForm form;
  form.has_base = is_there("base_model.embedding.weight");
  if (!form.has_base && !is_there("shared.emb.weight")) return {};
  form.fuses_attention = is_there("attn.in_proj.qkv_fused.weight");
  form.has_in_proj = form.fuses_attention || is_there("attn.in_proj.query.weight");
  form.fuses_mlp = is_there("ff_sub_layer.wg1_fused.weight");
  Naming naming;
  for (const Parameter& p : parameters_) {
    const auto tensor = fms_tensor_of(p.name, form);
    if (!tensor) return {};
    Place place{tensor->name, 0, 0, tensor->interleaved};
    for (const std::string& row : tensor->parameters) {
      if (tensor->parameters.size() == 1) break;
      if (row == p.name) place.first_row = place.rows;
      place.rows += parameter(row).shape[0];
    }
    naming.places.push_back(std::move(place));
  }
  naming.head = fms_tensor_of(model_family(model_.model_type).tensors.output, form)->name;
  return naming;
}

}  // namespace tessera
