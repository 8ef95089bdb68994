#include "hub/gguf_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kGgufAlignment = 32;

// Types of values and of tensors, as the format numbers them.
enum ValueType : uint32_t {
  kU8 = 0,
  kU32 = 4,
  kI32Value = 5,
  kF32Value = 6,
  kTruth = 7,
  kTextValue = 8,
  kList = 9
};

uint32_t tensor_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kBF16: return 30;
    default: break;
  }
  throw InternalError(cat("no tensor of a GGUF file is ", name(dtype)));
}

uint64_t padding(uint64_t bytes) {
  return (kGgufAlignment - bytes % kGgufAlignment) % kGgufAlignment;
}

}  // namespace

template <class T>
void GgufWriter::put(T value) {
  auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  header_.append(bytes.data(), bytes.size());
}
void GgufWriter::put_text(std::string_view value) {
  put(uint64_t{value.size()});
  header_ += value;
}
void GgufWriter::begin_key(std::string_view key, uint32_t type) {
  TESSERA_CHECK(!file_, "keys come before tensors");
  ++keys_;
  put_text(key);
  put(type);
}
void GgufWriter::begin_list(std::string_view key, uint32_t type, uint64_t count) {
  begin_key(key, kList);
  put(type);
  put(count);
}

void GgufWriter::text(std::string_view key, std::string_view value) {
  begin_key(key, kTextValue);
  put_text(value);
}
void GgufWriter::number(std::string_view key, int64_t value) {
  TESSERA_CHECK(value >= 0 && value <= std::numeric_limits<uint32_t>::max(), key);
  begin_key(key, kU32);
  put(static_cast<uint32_t>(value));
}
void GgufWriter::real(std::string_view key, double value) {
  begin_key(key, kF32Value);
  put(static_cast<float>(value));
}
void GgufWriter::truth(std::string_view key, bool value) {
  begin_key(key, kTruth);
  put(static_cast<uint8_t>(value));
}
void GgufWriter::texts(std::string_view key, std::span<const std::string> values) {
  begin_list(key, kTextValue, values.size());
  for (const std::string& value : values) put_text(value);
}
void GgufWriter::numbers(std::string_view key, std::span<const int32_t> values) {
  begin_list(key, kI32Value, values.size());
  for (int32_t value : values) put(value);
}
void GgufWriter::reals(std::string_view key, std::span<const float> values) {
  begin_list(key, kF32Value, values.size());
  for (float value : values) put(value);
}
void GgufWriter::bytes(std::string_view key, std::string_view values) {
  begin_list(key, kU8, values.size());
  header_ += values;
}

void GgufWriter::begin_tensors(std::span<const Tensor> tensors) {
  std::string keys = std::move(header_);
  header_ = "GGUF";
  put(uint32_t{3});
  put(uint64_t{tensors.size()});
  put(keys_);
  header_ += keys;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    put_text(tensor.name);
    put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) put(static_cast<uint64_t>(tensor.shape[d]));
    put(tensor_type(tensor.dtype));
    put(offset);
    const auto bytes = static_cast<uint64_t>(num_elements(tensor.shape) * size_of(tensor.dtype));
    TESSERA_CHECK(bytes > 0, tensor.name);
    left_.push_back(bytes);
    offset += bytes + padding(bytes);
  }
  std::ranges::reverse(left_);
  header_.append(padding(header_.size()), '\0');
  file_.emplace(path_, Caching::kNone);
  file_->write(header_);
  written_ = header_.size();
}

void GgufWriter::write(const void* data, uint64_t bytes) {
  TESSERA_CHECK(file_ && !left_.empty() && bytes <= left_.back() - in_tensor_);
  file_->write(data, bytes);
  written_ += bytes;
  in_tensor_ += bytes;
  if (in_tensor_ < left_.back()) return;
  const std::string zeros(padding(in_tensor_), '\0');
  file_->write(zeros);
  written_ += zeros.size();
  in_tensor_ = 0;
  left_.pop_back();
}

uint64_t GgufWriter::commit() {
  TESSERA_CHECK(file_ && left_.empty(), "tensors are missing");
  file_->commit();
  return written_;
}

}  // namespace tessera
