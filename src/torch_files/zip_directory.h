#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A file in a zip archive, stored as it is.
struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  // of its first byte, from the start of the archive
  uint64_t bytes = 0;
};

// The entries of a zip archive (with or without zip64 records, no comment at its end), by name.
// What stands before entries is not looked at but for its lengths, and contents are not at all.
//
// UserError that names `where`: a truncated archive or one that breaks its format, more than
// 1,048,576 entries, one that is compressed, encrypted or in another volume, two of one name, two
// that overlap, one that leads out of the archive.
std::vector<ZipEntry> read_zip_directory(std::span<const std::byte> archive,
                                         std::string_view where);

}  // namespace tessera
