#include "hub/family_names.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

const std::vector<FamilyNames>& families() {
  constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";
  static const std::vector<FamilyNames> all{
      {"llama", "model.", kEmbedding, kHead, {}, {".rotary_emb.inv_freq"}},
      {"mistral", "model.", kEmbedding, kHead, {}, {".rotary_emb.inv_freq"}},
  };
  return all;
}

bool ends_with_any(std::string_view name, const std::vector<std::string_view>& ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

bool FamilyNames::is_transposed(std::string_view parameter) const {
  return ends_with_any(parameter, transposed);
}

bool FamilyNames::is_buffer(std::string_view name) const { return ends_with_any(name, buffers); }

const FamilyNames& family_names(std::string_view model_type) {
  for (const FamilyNames& family : families()) {
    if (family.model_type == model_type) return family;
  }
  throw InternalError(cat("no names are known for the family '", model_type, "'"));
}

}  // namespace tessera
