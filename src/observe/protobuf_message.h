#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// A message of Protocol Buffers that is written: its fields in the order in which they are added.
class ProtobufMessage {
 public:
  ProtobufMessage& number(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  ProtobufMessage& f64(int field, double value) {
    key(field, 1);
    return raw(value);
  }
  ProtobufMessage& f32(int field, float value) {
    key(field, 5);
    return raw(value);
  }
  ProtobufMessage& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  ProtobufMessage& message(int field, const ProtobufMessage& value) {
    return bytes(field, value.text_);
  }
  const std::string& text() const { return text_; }

 private:
  void key(int field, unsigned wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  // Little-endian, as hosts of this program are.
  template <class T>
  ProtobufMessage& raw(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  std::string text_;
};

}  // namespace tessera
