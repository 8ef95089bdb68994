#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hub/weight_files.h"

namespace tessera {

// Llama models as Meta publishes them: params.json, and consolidated.00.pth, consolidated.01.pth,
// ... of as many parts as the model was cut into for its programs. Next to transformers' files
// - tensors have other names,
// - every part has some rows of most matrices and some columns of others,
// - a head's pairs of rotated elements are neighbours: rows of queries and keys stand in another
//   order.

// Whether a path is such a directory, or the first of its files.
bool is_meta_llama(const std::filesystem::path& path);

// What Meta's programs, and torchtitan before 0.3, call a parameter, or torchtitan since then;
// nullopt for one that they do not have.
enum class MetaForm { kMeta, kTorchtitan };
struct MetaName {
  std::string name;
  bool interleaved = false;  // row 2 i + j of a head is row j * head_dim / 2 + i here
};
std::optional<MetaName> meta_name_of(std::string_view parameter, MetaForm form = MetaForm::kMeta);

// The files of the parts, in order. UserError: none.
std::vector<std::filesystem::path> meta_llama_parts(const std::filesystem::path& directory);

// The tensors of all parts under transformers' names and in its order; tables of rotary frequencies
// are left out. UserError naming file and tensor: parts that disagree or are missing, and what
// params.json lacks.
std::vector<std::pair<std::string, StoredTensor>> meta_llama_tensors(
    const std::filesystem::path& directory, std::span<const std::filesystem::path> paths,
    std::span<const std::unique_ptr<TorchFile>> parts);

}  // namespace tessera
