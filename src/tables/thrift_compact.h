#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/text.h"
#include "tables/table_error.h"

namespace tessera {

// The bytes end before the structure does: damaged, or there is more to be read.
struct EndOfThrift : Damaged {
  EndOfThrift() : Damaged("a structure is cut short") {}
};

// Thrift's compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
class ThriftReader {
 public:
  enum Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kInt16 = 4,
    kInt32 = 5,
    kInt64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
    kUuid = 13,
  };

  explicit ThriftReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t position() const { return position_; }

  // Calls on_field(number, type) for each field of a struct; it reads the value with one of the
  // functions below, and returns false for what it left alone.
  template <class F>
  void read_struct(F&& on_field) {
    Depth depth(*this);
    int64_t number = 0;
    for (;;) {
      const uint8_t head = byte();
      const auto type = static_cast<Type>(head & 15u);
      if (type == kStop) return;
      number = (head >> 4u) != 0 ? number + (head >> 4u) : signed_number();
      if (!on_field(number, type)) skip(type);
    }
  }
  // Calls on_element(type) for each element, which must read it. The number of elements is at most
  // that of the bytes left.
  template <class F>
  void read_list(Type type, F&& on_element) {
    if (type != kList && type != kSet) throw Damaged("a structure has a field of the wrong type");
    Depth depth(*this);
    const uint8_t head = byte();
    const auto element = static_cast<Type>(head & 15u);
    const uint64_t count = (head >> 4u) == 15 ? number() : head >> 4u;
    if (count > bytes_.size() - position_) throw EndOfThrift();
    for (uint64_t i = 0; i < count; ++i) on_element(element);
  }
  int64_t integer(Type type) {
    if (type == kByte) return static_cast<int8_t>(byte());
    if (type != kInt16 && type != kInt32 && type != kInt64)
      throw Damaged("a structure has a field of the wrong type");
    return signed_number();
  }
  static bool truth(Type type) { return type == kTrue; }
  std::string_view binary(Type type) {
    if (type != kBinary) throw Damaged("a structure has a field of the wrong type");
    const uint64_t size = number();
    if (size > bytes_.size() - position_) throw EndOfThrift();
    std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_,
                          static_cast<size_t>(size));
    position_ += text.size();
    return text;
  }
  void skip(Type type);

 private:
  struct Depth {
    explicit Depth(ThriftReader& r) : reader(r) {
      if (++reader.depth_ > 64) throw Damaged("structures nest too deep");
    }
    ~Depth() { --reader.depth_; }
    ThriftReader& reader;
  };
  uint8_t byte() {
    if (position_ >= bytes_.size()) throw EndOfThrift();
    return static_cast<uint8_t>(bytes_[position_++]);
  }
  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint8_t part = byte();
      value |= static_cast<uint64_t>(part & 127u) << shift;
      if (part < 128) return value;
    }
    throw Damaged("a number is too long");
  }
  int64_t signed_number() {
    const uint64_t value = number();
    return static_cast<int64_t>(value >> 1u ^ (0 - (value & 1u)));
  }
  void skip_bytes(size_t count) {
    if (count > bytes_.size() - position_) throw EndOfThrift();
    position_ += count;
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace tessera
