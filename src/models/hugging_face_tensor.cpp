#include "models/hugging_face_tensor.h"

#include <algorithm>
#include <string_view>

#include "models/model_family.h"

namespace tessera {

HuggingFaceTensor hugging_face_tensor(ModelType family, const Parameter& parameter) {
  int64_t elements = num_elements(parameter.shape);
  if (parameter.shape.size() == 1 || parameter.name.ends_with(".bias")) return {{elements}};
  int64_t in = parameter.shape.back(), out = elements / in;
  bool transposed =
      std::ranges::any_of(model_family(family).tensors.transposed,
                          [&](std::string_view end) { return parameter.name.ends_with(end); });
  return transposed ? HuggingFaceTensor{{in, out}, true} : HuggingFaceTensor{{out, in}};
}

}  // namespace tessera
