#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/shape.h"

namespace tessera {

// How weight files hold a parameter of a model.
struct FileTensor {
  std::string name;  // the parameter's own, with the prefix of its family
  Shape shape;       // in the files
  // A matrix of which the parameter is the transpose: gpt2's Conv1D. If not, the elements are those
  // of the parameter in the same order, whatever its shape.
  bool transposed = false;
};

// How weight files of one family of transformers' models differ from our parameters in what they
// hold. Names are transformers' own; what is left:
struct FamilyNames {
  std::string_view model_type;  // as in config.json: "gpt2"
  // What the names of all but the output matrix begin with. Files that were saved from the model
  // without its head lack it.
  std::string_view prefix;
  // The input embedding and the output matrix. Where a model ties them the files hold the first,
  // some of them both.
  std::string_view embedding, head;
  // Tensors that are no weights (masks, rotary tables), by the ends of their names.
  std::span<const std::string_view> buffers;
  std::string_view head_in_memory = {};  // of a model in memory, if it is another: states have it
};

}  // namespace tessera
