#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Names that the Llamas of IBM's foundation-model-stack (package fms) give their weights. Like
// Meta's they rotate neighbours of a head, and several matrices may be the rows of one.
struct FmsForm {
  bool has_base = true;  // "base_model.embedding" and "head", since 1.3; else "shared.emb"
  // "attn.in_proj.qkv_fused"; else three, in "attn.in_proj." or, before 0.0.6, in "attn.".
  bool fuses_attention = true, has_in_proj = true;
  bool fuses_mlp = true;  // "wg1_fused": gate, then up
};

struct FmsTensor {
  std::string name;
  std::vector<std::string> parameters;  // one below the other
  bool interleaved = false;             // rows of the parameter: as MetaName
};

// The tensor that has a parameter; nullopt for one that these models do not have.
std::optional<FmsTensor> fms_tensor_of(std::string_view parameter, const FmsForm& form);

}  // namespace tessera
