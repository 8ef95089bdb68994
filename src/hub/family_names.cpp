#include "hub/family_names.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

const std::vector<FamilyNames>& families() {
  constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";
  constexpr std::string_view kRotary = ".rotary_emb.inv_freq";
  static const std::vector<FamilyNames> all{
      {"llama", "model.", kEmbedding, kHead, {kRotary}},
      {"mistral", "model.", kEmbedding, kHead, {kRotary}},
      {"qwen2", "model.", kEmbedding, kHead, {kRotary}},
      {"gpt2",
       "transformer.",
       "transformer.wte.weight",
       kHead,
       {".attn.bias", ".attn.masked_bias"}},
      {"gpt_neox",
       "gpt_neox.",
       "gpt_neox.embed_in.weight",
       "embed_out.weight",
       {".attention.bias", ".attention.masked_bias", kRotary}},
  };
  return all;
}

}  // namespace

bool FamilyNames::is_buffer(std::string_view name) const {
  return std::ranges::any_of(buffers, [&](std::string_view end) { return name.ends_with(end); });
}

const FamilyNames& family_names(std::string_view model_type) {
  for (const FamilyNames& family : families()) {
    if (family.model_type == model_type) return family;
  }
  throw InternalError(cat("no names are known for the family '", model_type, "'"));
}

}  // namespace tessera
