#include "torch_files/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kAlignment = 64, kLocalBytes = 30;
constexpr uint16_t kVersion = 45;  // with zip64 records
// Lengths stand behind the content; names are UTF-8.
constexpr uint16_t kFlags = 0x0808;

// Numbers one after the other, each in the bytes of its type.
template <class... T>
std::string numbers(T... all) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&all), sizeof all), ...);
  return bytes;
}

uint32_t narrow(uint64_t number) {
  return static_cast<uint32_t>(std::min(number, uint64_t{UINT32_MAX}));
}

}  // namespace

void ZipWriter::emit(std::string_view bytes) {
  sink_(std::as_bytes(std::span(bytes)));
  at_ += bytes.size();
}

void ZipWriter::begin(std::string name) {
  TESSERA_CHECK(name.size() <= UINT16_MAX);
  // A field of the header that nobody reads fills it up.
  const uint64_t least = at_ + kLocalBytes + name.size() + 4;
  const auto filling = static_cast<uint16_t>((kAlignment - least % kAlignment) % kAlignment);
  const auto length = static_cast<uint16_t>(name.size());
  const std::string header =
      cat("PK\3\4", numbers(kVersion, kFlags, uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}),
          numbers(uint32_t{0}, uint32_t{0}, length, static_cast<uint16_t>(filling + 4)), name, "FB",
          numbers(filling), std::string(filling, 'Z'));
  entries_.push_back({std::move(name), at_, 0, 0});
  emit(header);
}

void ZipWriter::write(std::span<const std::byte> content) {
  Entry& entry = entries_.back();
  entry.bytes += content.size();
  entry.checksum = static_cast<uint32_t>(
      crc32_z(entry.checksum, reinterpret_cast<const Bytef*>(content.data()), content.size()));
  sink_(content);
  at_ += content.size();
}

void ZipWriter::end() {
  const Entry& entry = entries_.back();
  const bool wide = entry.bytes >= UINT32_MAX;
  emit(cat("PK\7\x08", numbers(entry.checksum),
           wide ? numbers(entry.bytes, entry.bytes)
                : numbers(narrow(entry.bytes), narrow(entry.bytes))));
}

void ZipWriter::add(std::string name, std::string_view content) {
  begin(std::move(name));
  write(std::as_bytes(std::span(content)));
  end();
}

uint64_t ZipWriter::finish() {
  const uint64_t directory = at_;
  for (const Entry& entry : entries_) {
    std::string wide;
    if (entry.bytes >= UINT32_MAX) wide += numbers(entry.bytes, entry.bytes);
    if (entry.header >= UINT32_MAX) wide += numbers(entry.header);
    if (!wide.empty()) wide = cat(numbers(uint16_t{1}, static_cast<uint16_t>(wide.size())), wide);
    emit(cat("PK\1\2", numbers(kVersion, kVersion, kFlags, uint16_t{0}, uint16_t{0}, uint16_t{0}),
             numbers(entry.checksum, narrow(entry.bytes), narrow(entry.bytes)),
             numbers(static_cast<uint16_t>(entry.name.size()), static_cast<uint16_t>(wide.size())),
             numbers(uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, narrow(entry.header)),
             entry.name, wide));
  }
  const uint64_t record = at_, bytes = at_ - directory, count = entries_.size();
  const auto few = static_cast<uint16_t>(std::min(count, uint64_t{UINT16_MAX}));
  emit(cat("PK\6\6", numbers(uint64_t{44}, kVersion, kVersion, uint32_t{0}, uint32_t{0}),
           numbers(count, count, bytes, directory)));
  emit(cat("PK\6\7", numbers(uint32_t{0}, record, uint32_t{1})));
  emit(cat("PK\5\6", numbers(uint16_t{0}, uint16_t{0}, few, few),
           numbers(narrow(bytes), narrow(directory), uint16_t{0})));
  return at_;
}

}  // namespace tessera
