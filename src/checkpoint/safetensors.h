#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"

namespace tessera {

// The safetensors format: `u64 N | N bytes of JSON | data`, little-endian, where the JSON gives
// each tensor's dtype, shape and [begin, end) in the data. Tensors are C-contiguous and tile the
// data.

// Where one tensor lies in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their offsets
  SafetensorsMetadata metadata;
};

// Reads and checks the header of a whole file. Refused with a UserError that names `file` and the
// tensor: a header over 100 MB or longer than the file, anything but the format's own keys, a key
// twice, an element type other than F64 F32 BF16 F16 I64 I32 BOOL, a shape that disagrees with its
// byte range, ranges that overlap, leave a hole or do not end with the file.
SafetensorsHeader parse_safetensors(std::span<const std::byte> content, std::string_view file);

// A safetensors file, memory-mapped: pages are read when their bytes are.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // UserError as parse_safetensors

  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  // nullptr if there is no tensor of that name.
  const TensorInfo* find(std::string_view name) const;
  // Valid while the file object lives. Foreign files need not align tensors to their element size.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const {
    return {file_.data() + tensor.offset, tensor.bytes};
  }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;  // indices into header_.tensors, sorted by name
};

// A tensor in memory, C-contiguous. The bytes belong to the caller.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;
};

// Size and XXH3 of a file as written.
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

// Writes the tensors to `path`, aside and renamed (AtomicFile). They are laid out by decreasing
// element size, otherwise in the order given, so each is aligned to its element size. The default
// metadata is what Hugging Face's loaders ask for. UserError with path and cause when the disk
// fails.
FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace tessera
