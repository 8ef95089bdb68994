#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
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

// A tensor of an element type that is not one of DType's: it is there, but cannot be read.
struct ForeignTensor {
  std::string name, element_type;  // as the file has it: "U8"
  Shape shape;
  uint64_t offset = 0, bytes = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;     // in the order of their offsets
  std::vector<ForeignTensor> foreign;  // likewise
  SafetensorsMetadata metadata;
};

// Reads and checks the header of a whole file. Refused with a UserError that names `file` and the
// tensor: a header over 100 MB or longer than the file, more than 262,144 tensors, anything but the
// format's own keys, a key twice, an element type of unknown size, a shape that disagrees with its
// byte range, ranges that overlap, leave a hole or do not end with the file.
SafetensorsHeader parse_safetensors(std::span<const std::byte> content, std::string_view file);

// A safetensors file, memory-mapped: pages are read when their bytes are.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // UserError as parse_safetensors

  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::vector<ForeignTensor>& foreign() const { return header_.foreign; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  // nullptr if there is no tensor of that name.
  const TensorInfo* find(std::string_view name) const;
  // Valid while the file object lives. Foreign files need not align tensors to their element size.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const {
    return {file_.data() + tensor.offset, tensor.bytes};
  }
  // Advice about bytes [begin, begin + bytes) of a tensor.
  void advise(const TensorInfo& tensor, uint64_t begin, uint64_t bytes, Advice advice) const {
    file_.advise(tensor.offset + begin, bytes, advice);
  }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;  // indices into header_.tensors, sorted by name
};

// The bytes of a tensor that is written: in memory, or copied from where they are, piece by piece.
class TensorBytes {
 public:
  using Read = std::function<void(uint64_t offset, std::span<std::byte> to)>;
  TensorBytes(const void* data) : data_(static_cast<const std::byte*>(data)) {}
  // `find` says where they are, once they are read, or nullptr.
  using Find = std::function<const std::byte*()>;
  TensorBytes(Read read, Find find = {}) : read_(std::move(read)), find_(std::move(find)) {}
  void read(uint64_t offset, std::span<std::byte> to) const;
  // Where they are in memory: nullptr if they are not, or if there are none.
  const std::byte* data() const { return find_ ? find_() : data_; }

 private:
  const std::byte* data_ = nullptr;
  Read read_;
  Find find_;
};

// A tensor, C-contiguous. The bytes belong to the caller.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  TensorBytes data = nullptr;
  uint64_t bytes() const { return static_cast<uint64_t>(num_elements(shape) * size_of(dtype)); }
};

// Size and XXH3 of a file as written.
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

// What a file begins with, up to the first byte of its data: the length of the header and the
// header. Of `tensors`, name, dtype and shape; they follow each other as given. So each is aligned
// to its element size if these do not increase. InternalError for names twice or too long;
// UserError for those that are not UTF-8.
std::string safetensors_beginning(std::span<const TensorInfo> tensors,
                                  const SafetensorsMetadata& metadata);

// Writes a file of tensors whose bytes come piece by piece: aside, and in its place with commit()
// (AtomicFile). UserError with path and cause when the disk fails.
class SafetensorsWriter {
 public:
  // `tensors` as for safetensors_beginning(). The default metadata is what Hugging Face's loaders
  // ask for.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorInfo> tensors,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}});
  // The next bytes of the data, tensor after tensor.
  void write(const void* data, uint64_t bytes);
  // All bytes must have been written.
  FileDigest commit();

 private:
  AtomicFile file_;
  Hasher hasher_;
  uint64_t bytes_ = 0, end_ = 0;
};

// SafetensorsWriter in one call. The tensors are laid out by decreasing element size, otherwise in
// the order given.
FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace tessera
