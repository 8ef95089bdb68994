#include "observe/tensorboard_events.h"

#include <array>
#include <bit>

#include "observe/protobuf_message.h"

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

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log. A step of 0 is not written.
ProtobufMessage event(double wall_time, int64_t step = 0) {
  ProtobufMessage message;
  message.f64(1, wall_time);
  if (step != 0) message.number(2, static_cast<uint64_t>(step));
  return message;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string record_of(const ProtobufMessage& message) {
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
  return record_of(event(wall_time, step).message(7, ProtobufMessage().number(1, kStart)));
}

// Summary: 1 value. Value: 1 tag, 2 simple_value, 8 tensor, 9 metadata.
std::string scalars_record(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  ProtobufMessage summary;
  for (const Scalar& scalar : scalars) {
    summary.message(
        1, ProtobufMessage().bytes(1, scalar.tag).f32(2, static_cast<float>(scalar.value)));
  }
  return record_of(event(wall_time, step).message(5, summary));
}

// HistogramProto: 1 min, 2 max, 3 num, 4 sum, 5 sum_squares, 6 bucket_limit, 7 bucket, all f64.
std::string histogram_record(double wall_time, int64_t step, std::string_view tag,
                             const Distribution& values) {
  std::string limits, counts;
  for (const Distribution::Bucket& bucket : values.buckets()) {
    const auto count = static_cast<double>(bucket.count);
    limits += bytes_of(bucket.limit);
    counts += bytes_of(count);
  }
  ProtobufMessage histogram;
  histogram.f64(1, values.least()).f64(2, values.most());
  histogram.f64(3, static_cast<double>(values.count()));
  histogram.f64(4, values.sum()).f64(5, values.sum_of_squares());
  histogram.bytes(6, limits).bytes(7, counts);
  const ProtobufMessage value = ProtobufMessage().bytes(1, tag).message(5, histogram);
  return record_of(event(wall_time, step).message(5, ProtobufMessage().message(1, value)));
}

std::string text_record(double wall_time, int64_t step, std::string_view tag,
                        std::string_view text) {
  constexpr uint64_t kString = 7;  // DataType: DT_STRING
  const ProtobufMessage plugin = ProtobufMessage().bytes(1, "text");
  const ProtobufMessage one_dim = ProtobufMessage().message(2, ProtobufMessage().number(1, 1));
  const ProtobufMessage tensor =
      ProtobufMessage().number(1, kString).message(2, one_dim).bytes(8, text);
  const ProtobufMessage value = ProtobufMessage().bytes(1, tag).message(8, tensor).message(
      9, ProtobufMessage().message(1, plugin));
  return record_of(event(wall_time, step).message(5, ProtobufMessage().message(1, value)));
}

}  // namespace tessera
