#include "models/hugging_face_tensor.h"

#include <algorithm>
#include <string_view>

namespace tessera {

HuggingFaceTensor hugging_face_tensor(ModelType family, const Parameter& parameter) {
  int64_t elements = num_elements(parameter.shape);
  if (parameter.shape.size() == 1 || parameter.name.ends_with(".bias")) return {{elements}};
  constexpr std::string_view kConv1d[] = {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"};
  int64_t in = parameter.shape.back(), out = elements / in;
  bool transposed =
      family == ModelType::kGpt2 && std::ranges::any_of(kConv1d, [&](std::string_view name) {
        return parameter.name.ends_with(name);
      });
  return transposed ? HuggingFaceTensor{{in, out}, true} : HuggingFaceTensor{{out, in}};
}

}  // namespace tessera
