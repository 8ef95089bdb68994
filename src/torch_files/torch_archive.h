#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"
#include "torch_files/pickle.h"

namespace tessera {

// A tensor of a file of torch.save. Several may share bytes.
struct TorchTensor {
  std::string name;            // the keys of the dicts that it is in, joined by dots
  std::string element_type;    // as PyTorch calls it: "float32"
  std::optional<DType> dtype;  // nullopt: one that is not among DType's, so it cannot be read
  Shape shape;
  Shape strides;        // elements between neighbours; see strided.h
  uint64_t offset = 0;  // of the first element, from the start of the archive
  uint64_t bytes = 0;   // from there to the end of the last element that it reaches
  uint64_t element_bytes = 0;
};

// What torch.save wrote (PyTorch 1.6 and later): a zip archive with a pickle and the storages of
// its tensors, as they are. The pickle is never executed (pickle.h).
class TorchArchive {
 public:
  // `content` must outlive the archive. UserError that names `where`: no such archive (of one in
  // the form of PyTorch before 1.6: how to save it again), what read_zip_directory and Pickle
  // report, other byte order, a tensor that is not one of the plain kinds or does not lie in its
  // storage, by its name; two of one name; dicts that nest deeper than 32, more than 262,144
  // tensors.
  TorchArchive(std::span<const std::byte> content, const std::string& where);

  // By name. Those that are in dicts only: not in lists.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  // nullptr if there is none of that name. A file that holds a tensor and no dict has it as "".
  const TorchTensor* find(std::string_view name) const;
  // All that was saved; in it a tensor is an object of a torch._utils function.
  const Pickle& values() const { return *values_; }
  Pickle take_values() && { return std::move(*values_); }

  // From the first element on, `bytes` of them: elements are where `strides` say.
  std::span<const std::byte> stored(const TorchTensor& tensor) const {
    return content_.subspan(tensor.offset, tensor.bytes);
  }
  // Elements first, first + 1, ... in row-major order, as many as `out` holds.
  void read(const TorchTensor& tensor, int64_t first, std::span<std::byte> out) const;

 private:
  std::span<const std::byte> content_;
  std::optional<Pickle> values_;
  std::vector<TorchTensor> tensors_;
};

// A file with an archive, memory-mapped: pages are read when their bytes are.
class TorchFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);  // UserError as TorchArchive

  const TorchArchive& archive() const { return archive_; }
  const MappedFile& mapping() const { return file_; }

 private:
  MappedFile file_;
  TorchArchive archive_;
};

// Whether a file begins as those of torch.save do, in today's form or in that of before
// PyTorch 1.6.
bool looks_like_torch_file(std::span<const std::byte> content);
bool looks_like_torch_file(const std::filesystem::path& file);

}  // namespace tessera
