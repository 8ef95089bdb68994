#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace tessera {

// One tensor of a WeightFiles.
struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;  // null: of a foreign element type, which cannot be read
  std::filesystem::path path;        // of the file
};

// The weights of a model as Hugging Face's programs keep them, memory-mapped: named tensors in one
// file or in several.
class WeightFiles {
 public:
  // `path` is a directory with model.safetensors, or with model.safetensors.index.json and the
  // files that it names; or one .safetensors file; or an index. UserError that says what is there
  // instead: nothing, pickled weights (which are never opened: how to convert them is said), a
  // checkpoint of tessera's, an index that names a missing file, that disagrees with its files or
  // leads out of the directory, a tensor in two files, and what SafetensorsFile reports.
  explicit WeightFiles(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // nullptr if there is none of that name.
  const StoredTensor* find(std::string_view name) const;

 private:
  void open();
  void add_file(const std::filesystem::path& path);
  void add_indexed(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace tessera
