#pragma once
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

namespace tessera {

// Writes a GGUF file, as llama.cpp's programs read models (version 3, little-endian):
//   "GGUF" | u32 3 | u64 tensors | u64 keys | keys with values | name, dims, type and offset of
//   every tensor | data, in which every tensor begins at a multiple of 32 bytes
// It is written aside, and in its place with commit().
class GgufWriter {
 public:
  explicit GgufWriter(std::filesystem::path path) : path_(std::move(path)) {}

  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, int64_t value);  // u32: InternalError beyond
  void real(std::string_view key, double value);     // f32
  void truth(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void numbers(std::string_view key, std::span<const int32_t> values);
  void reals(std::string_view key, std::span<const float> values);
  void bytes(std::string_view key, std::string_view values);

  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;  // f32, f16 or bf16
    Shape shape;                // row-major: the last dim is the innermost
  };
  // Behind the last key. UserError with path and cause when the disk fails, here and below.
  void begin_tensors(std::span<const Tensor> tensors);
  // The next bytes of the data, tensor after tensor; none lies in two.
  void write(const void* data, uint64_t bytes);
  // All bytes must have been written. Returns the size of the file.
  uint64_t commit();

 private:
  template <class T>
  void put(T value);
  void put_text(std::string_view value);
  void begin_key(std::string_view key, uint32_t type);
  void begin_list(std::string_view key, uint32_t type, uint64_t count);

  std::filesystem::path path_;
  std::optional<AtomicFile> file_;
  std::string header_;
  uint64_t keys_ = 0, written_ = 0;
  std::vector<uint64_t> left_;  // bytes of the tensors that are not written yet, the last one first
  uint64_t in_tensor_ = 0;
};

}  // namespace tessera
