#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tessera {

struct ZipForm {
  bool zip64 = false;  // with the records that torch.save writes
  uint16_t method = 0, flags = 0;
};

inline std::span<const std::byte> bytes_of(std::string_view content) {
  return std::as_bytes(std::span(content));
}

// A number as `bytes` bytes, the least first.
inline std::string little(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += i < 8 ? static_cast<char>(number >> (8 * i)) : '\0';
  return text;
}

// A zip archive with these files, stored.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files,
                          const ZipForm& form = {}) {
  std::string content, directory;
  for (const auto& [name, bytes] : files) {
    const uint64_t at = content.size(), size = bytes.size();
    std::string wide;
    if (form.zip64)
      wide = cat(little(1, 2), little(24, 2), little(size, 8), little(size, 8), little(at, 8));
    auto narrow = [&](uint64_t number) { return little(form.zip64 ? UINT32_MAX : number, 4); };
    const std::string filler(3, 'F');
    content += cat("PK\3\4", little(0, 22), little(name.size(), 2), little(filler.size(), 2), name,
                   filler, bytes);
    directory += cat("PK\1\2", little(0, 4), little(form.flags, 2), little(form.method, 2),
                     little(0, 8), narrow(size), narrow(size), little(name.size(), 2),
                     little(wide.size(), 2), little(0, 2), little(0, 8), narrow(at), name, wide);
  }
  const uint64_t begin = content.size(), count = files.size();
  content += directory;
  if (form.zip64) {
    const uint64_t record = content.size();
    content += cat("PK\6\6", little(44, 8), little(0, 12), little(count, 8), little(count, 8),
                   little(directory.size(), 8), little(begin, 8));
    content += cat("PK\6\7", little(0, 4), little(record, 8), little(1, 4));
  }
  auto narrow = [&](uint64_t number, int bytes) {
    return little(form.zip64 ? UINT64_MAX : number, bytes);
  };
  return content + cat("PK\5\6", little(0, 4), narrow(count, 2), narrow(count, 2),
                       narrow(directory.size(), 4), narrow(begin, 4), little(0, 2));
}

}  // namespace tessera
