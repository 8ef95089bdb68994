#include "observe/tensorboard_events.h"

#include <array>
#include <bit>
#include <cstring>

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

// CRC-32C (Castagnoli), a byte at a time.
constexpr auto kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}();

uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

// The fields of a message of Protocol Buffers, in the order in which they are added.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& f64(int field, double value) {
    key(field, 1);
    return raw(value);
  }
  Message& f32(int field, float value) {
    key(field, 5);
    return raw(value);
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }
  const std::string& text() const { return text_; }

 private:
  void key(int field, unsigned wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  template <class T>
  Message& raw(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  std::string text_;
};

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log. A step of 0 is not written.
Message event(double wall_time, int64_t step = 0) {
  Message message;
  message.f64(1, wall_time);
  if (step != 0) message.number(2, static_cast<uint64_t>(step));
  return message;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string record_of(const Message& message) {
  const std::string& content = message.text();
  const uint64_t length = content.size();
  const uint32_t of_length = masked_crc(bytes_of(length)), of_content = masked_crc(content);
  std::string record;
  record += bytes_of(length);
  record += bytes_of(of_length);
  record += content;
  record += bytes_of(of_content);
  return record;
}

}  // namespace

std::string version_record(double wall_time) {
  return record_of(event(wall_time).bytes(3, "brain.Event:2"));
}

std::string restart_record(double wall_time, int64_t step) {
  constexpr uint64_t kStart = 1;
  return record_of(event(wall_time, step).message(7, Message().number(1, kStart)));
}

// Summary: 1 value. Value: 1 tag, 2 simple_value, 8 tensor, 9 metadata.
std::string scalars_record(double wall_time, int64_t step,
                           std::span<const TensorBoardScalar> scalars) {
  Message summary;
  for (const TensorBoardScalar& scalar : scalars) {
    summary.message(1, Message().bytes(1, scalar.tag).f32(2, static_cast<float>(scalar.value)));
  }
  return record_of(event(wall_time, step).message(5, summary));
}

std::string text_record(double wall_time, int64_t step, std::string_view tag,
                        std::string_view text) {
  constexpr uint64_t kString = 7;  // DataType: DT_STRING
  const Message plugin = Message().bytes(1, "text");
  const Message one_dim = Message().message(2, Message().number(1, 1));
  const Message tensor = Message().number(1, kString).message(2, one_dim).bytes(8, text);
  const Message value =
      Message().bytes(1, tag).message(8, tensor).message(9, Message().message(1, plugin));
  return record_of(event(wall_time, step).message(5, Message().message(1, value)));
}

}  // namespace tessera
