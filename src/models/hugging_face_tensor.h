#pragma once
#include "models/model_config.h"
#include "nn/parameter.h"

namespace tessera {

// How a Hugging Face checkpoint stores a parameter, under the same name: a matrix [out, in] whose
// rows are those of ours in order (stacks of matrices are one there), or its transpose [in, out]
// (GPT-2's Conv1D); biases and norms [n].
struct HuggingFaceTensor {
  Shape shape;
  bool transposed = false;
};
HuggingFaceTensor hugging_face_tensor(ModelType family, const Parameter& parameter);

}  // namespace tessera
