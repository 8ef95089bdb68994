#include "models/model_family.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

const ModelFamily& model_family(ModelType type) {
  return *kModelFamilies[static_cast<size_t>(type)];
}

std::string_view name(ModelType type) { return model_family(type).name; }

ModelType model_type_from_name(std::string_view text) {
  std::vector<std::string> names;
  for (const ModelFamily* family : kModelFamilies) {
    if (family->name == text) return family->type;
    names.emplace_back(family->name);
  }
  throw UserError(cat("model type '", text, "' is not known; known are ", join(names, ", ")));
}

void check_rotary_heads(const ModelConfig& c) {
  if (c.head_dim % 2 == 0) return;
  throw UserError(cat("rotary positions need an even head size: ", c.head_dim,
                      " (--hidden_width / --num_heads) is odd"));
}

void check_plain_heads(const ModelConfig& c) {
  if (c.num_key_value_heads != c.num_heads) {
    throw UserError(cat(name(c.model_type),
                        " has no grouped-query attention: --num_key_value_heads ",
                        c.num_key_value_heads, " must equal --num_heads ", c.num_heads));
  }
  if (c.num_heads * c.head_dim != c.hidden_width) {
    throw UserError(cat("the heads of ", name(c.model_type), " make up its width: ", c.num_heads,
                        " heads of ", c.head_dim, " are not ", c.hidden_width));
  }
}

}  // namespace tessera
