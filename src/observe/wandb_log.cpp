#include "observe/wandb_log.h"

#include <zlib.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kBlock = 32768, kFragmentHeader = 7;

void add_number(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace

std::string WandbLog::header() {
  const std::string header(":W&B\xe1\xbe\x00", 7);
  position_ += std::ssize(header);
  return header;
}

void WandbLog::add_fragment(std::string& out, char type, std::string_view bytes) {
  uLong crc = ::crc32(0, reinterpret_cast<const Bytef*>(&type), 1);
  crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  add_number(out, static_cast<uint32_t>(crc), 4);
  add_number(out, static_cast<uint32_t>(bytes.size()), 2);
  out += type;
  out += bytes;
  position_ += kFragmentHeader + std::ssize(bytes);
}

std::string WandbLog::frame(std::string_view record) {
  enum : char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
  std::string out;
  for (bool first = true, last = false; !last; first = false) {
    int64_t room = kBlock - position_ % kBlock;
    if (room < kFragmentHeader) {
      out.append(static_cast<size_t>(room), '\0');
      position_ += room;
      room = kBlock;
    }
    const auto size = std::min<int64_t>(room - kFragmentHeader, std::ssize(record));
    last = size == std::ssize(record);
    add_fragment(out, first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle),
                 record.substr(0, static_cast<size_t>(size)));
    record.remove_prefix(static_cast<size_t>(size));
  }
  return out;
}

}  // namespace tessera
