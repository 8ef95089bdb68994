#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// How weight files of one family of transformers' models differ from our parameters. Our names are
// transformers' own; what is left:
struct FamilyNames {
  std::string_view model_type;  // as in config.json: "gpt2"
  // What the names of all but the output matrix begin with. Files that were saved from the model
  // without its head lack it.
  std::string_view prefix;
  // The input embedding and the output matrix. Where a model ties them the files hold the first,
  // some of them both.
  std::string_view embedding, head;
  // Matrices that are stored transposed, as [in, out], by the ends of their names: gpt2's Conv1D.
  std::vector<std::string_view> transposed;
  // Tensors that are no weights (masks, rotary tables), by the ends of their names.
  std::vector<std::string_view> buffers;

  bool is_transposed(std::string_view parameter) const;
  bool is_buffer(std::string_view name) const;
};

// InternalError for a type that no family has.
const FamilyNames& family_names(std::string_view model_type);

}  // namespace tessera
