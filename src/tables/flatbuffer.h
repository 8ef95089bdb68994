#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/text.h"
#include "tables/table_error.h"

namespace tessera {

// FlatBuffers (https://flatbuffers.dev/internals/) read in place. Every offset is held against the
// buffer: what does not lie in it is Damaged. Nothing is assumed of alignment.
class FlatBytes {
 public:
  explicit FlatBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T load(uint64_t offset) const {
    T value;
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) fail();
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  // Where the offset that stands at `offset` leads to.
  uint64_t follow(uint64_t offset) const { return offset + load<uint32_t>(offset); }
  std::string_view text(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail();
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, static_cast<size_t>(size)};
  }

 private:
  [[noreturn]] static void fail() { throw Damaged("an offset leads out of a message"); }
  std::span<const std::byte> bytes_;
};

class FlatTable;

// A vector of tables, of structs or of numbers.
class FlatVector {
 public:
  FlatVector() : bytes_(std::span<const std::byte>{}) {}
  FlatVector(FlatBytes bytes, uint64_t offset, size_t element_bytes)
      : bytes_(bytes), first_(offset + 4), size_(bytes.load<uint32_t>(offset)) {
    bytes.text(first_, uint64_t{size_} * element_bytes);
  }
  size_t size() const { return size_; }
  FlatTable table(size_t i) const;
  // A number that lies `offset` bytes into element i, of which each has `stride`.
  template <class T>
  T number(size_t i, size_t stride, size_t offset = 0) const {
    return bytes_.load<T>(first_ + i * stride + offset);
  }

 private:
  FlatBytes bytes_;
  uint64_t first_ = 0;
  uint32_t size_ = 0;
};

class FlatTable {
 public:
  static FlatTable root(std::span<const std::byte> bytes) {
    FlatBytes all(bytes);
    return {all, all.follow(0)};
  }
  FlatTable(FlatBytes bytes, uint64_t offset) : bytes_(bytes), offset_(offset) {
    // The description of the fields lies so many bytes before the table, or behind it.
    const int64_t description = static_cast<int64_t>(offset) - bytes.load<int32_t>(offset);
    if (description < 0) throw Damaged("an offset leads out of a message");
    fields_ = static_cast<uint64_t>(description);
    fields_bytes_ = bytes.load<uint16_t>(fields_);
  }

  bool has(int field) const { return place(field) != 0; }
  template <class T>
  T number(int field, T absent = 0) const {
    uint64_t at = place(field);
    return at == 0 ? absent : bytes_.load<T>(at);
  }
  std::optional<FlatTable> table(int field) const {
    uint64_t at = place(field);
    if (at == 0) return std::nullopt;
    return FlatTable(bytes_, bytes_.follow(at));
  }
  FlatTable needed_table(int field, const char* what) const {
    auto inner = table(field);
    if (!inner) throw Damaged(cat("a message lacks its ", what));
    return *inner;
  }
  std::string_view text(int field) const {
    uint64_t at = place(field);
    if (at == 0) return {};
    at = bytes_.follow(at);
    return bytes_.text(at + 4, bytes_.load<uint32_t>(at));
  }
  // Empty where there is none. Of tables the elements are offsets of four bytes.
  FlatVector vector(int field, size_t element_bytes = 4) const {
    uint64_t at = place(field);
    return at == 0 ? FlatVector() : FlatVector(bytes_, bytes_.follow(at), element_bytes);
  }

 private:
  // Where the field lies, 0 where it is absent.
  uint64_t place(int field) const {
    const uint64_t entry = 4 + 2 * static_cast<uint64_t>(field);
    if (entry + 2 > fields_bytes_) return 0;
    const auto distance = bytes_.load<uint16_t>(fields_ + entry);
    return distance == 0 ? 0 : offset_ + distance;
  }
  FlatBytes bytes_;
  uint64_t offset_, fields_ = 0, fields_bytes_ = 0;
};

inline FlatTable FlatVector::table(size_t i) const {
  return {bytes_, bytes_.follow(first_ + i * 4)};
}

}  // namespace tessera
