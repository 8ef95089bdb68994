#include "torch_files/zip_directory.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kMaxEntries = uint64_t{1} << 20;
constexpr size_t kMaxEntryNameBytes = 1024;
// Records, and how many bytes of them have a fixed place.
constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50,
                   kLocatorSignature = 0x07064b50, kEntrySignature = 0x02014b50,
                   kLocalSignature = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46,
                   kLocalBytes = 30;
// What stands in a field of 32 bits whose number is in the zip64 record instead.
constexpr uint32_t kElsewhere = UINT32_MAX;

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> archive, std::string_view where)
      : archive_(archive), where_(where) {}

  std::vector<ZipEntry> run() {
    find_directory();
    if (count_ > kMaxEntries) fail(cat("it has ", count_, " entries, more than ", kMaxEntries));
    uint64_t at = begin_;
    for (uint64_t i = 0; i < count_; ++i) at = add_entry(at);
    if (at != end_) fail("its directory has more than its entries");
    check_overlap();
    std::ranges::sort(entries_, {}, &ZipEntry::name);
    auto twin = std::ranges::adjacent_find(entries_, {}, &ZipEntry::name);
    if (twin != entries_.end()) fail(cat("it has two entries '", twin->name, "'"));
    return std::move(entries_);
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    throw UserError(cat("'", where_, "' cannot be read as a zip archive: ", reason));
  }
  template <class T>
  T number(uint64_t offset) const {
    TESSERA_CHECK(offset <= archive_.size() && sizeof(T) <= archive_.size() - offset);
    T value;
    std::memcpy(&value, archive_.data() + offset, sizeof value);
    return value;
  }
  bool holds(uint64_t offset, uint64_t bytes) const {
    return offset <= archive_.size() && bytes <= archive_.size() - offset;
  }

  // The directory lies at [begin_, end_) and is followed by the records that say so.
  void find_directory() {
    if (!holds(0, kEndBytes) || number<uint32_t>(archive_.size() - kEndBytes) != kEndSignature)
      fail("its end is missing (is it truncated?)");
    const uint64_t end = archive_.size() - kEndBytes;
    count_ = number<uint16_t>(end + 10);
    uint64_t bytes = number<uint32_t>(end + 12);
    begin_ = number<uint32_t>(end + 16);
    uint64_t limit = end;
    if (end >= kLocatorBytes && number<uint32_t>(end - kLocatorBytes) == kLocatorSignature) {
      limit = number<uint64_t>(end - kLocatorBytes + 8);
      if (!holds(limit, kEnd64Bytes) || limit > end - kLocatorBytes ||
          number<uint32_t>(limit) != kEnd64Signature)
        fail("its zip64 record is not where it should be");
      count_ = number<uint64_t>(limit + 32);
      bytes = number<uint64_t>(limit + 40);
      begin_ = number<uint64_t>(limit + 48);
    }
    if (begin_ > limit || bytes > limit - begin_ || count_ > bytes / kEntryBytes)
      fail("its directory does not lie within it");
    end_ = begin_ + bytes;
  }

  // Returns where the next entry is.
  uint64_t add_entry(uint64_t at) {
    if (end_ - at < kEntryBytes || number<uint32_t>(at) != kEntrySignature)
      fail("its directory is broken");
    const uint64_t name_bytes = number<uint16_t>(at + 28), extra_bytes = number<uint16_t>(at + 30),
                   comment_bytes = number<uint16_t>(at + 32);
    const uint64_t all = kEntryBytes + name_bytes + extra_bytes + comment_bytes;
    if (end_ - at < all) fail("its directory is broken");
    if (name_bytes > kMaxEntryNameBytes) fail("it has an entry with a very long name");
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(archive_.data()) + at + kEntryBytes,
                      static_cast<size_t>(name_bytes));
    const uint16_t flags = number<uint16_t>(at + 8), method = number<uint16_t>(at + 10);
    if ((flags & 1u) != 0) fail(cat("its entry '", entry.name, "' is encrypted"));
    if (method != 0) {
      fail(cat("its entry '", entry.name,
               "' is compressed, which torch.save never does; save it again with torch.save"));
    }
    if (number<uint16_t>(at + 34) != 0 && number<uint16_t>(at + 34) != UINT16_MAX)
      fail("it is a part of an archive in several volumes");
    uint64_t stored = number<uint32_t>(at + 20);
    entry.bytes = number<uint32_t>(at + 24);
    uint64_t local = number<uint32_t>(at + 42);
    Extra extra = zip64_extra(at + kEntryBytes + name_bytes, extra_bytes);
    for (uint64_t* field : {&entry.bytes, &stored, &local}) {
      if (*field == kElsewhere) *field = next(extra, entry.name);
    }
    if (stored != entry.bytes) fail(cat("the lengths of its entry '", entry.name, "' disagree"));
    place(entry, local);
    return at + all;
  }

  // Numbers of 64 bits, in the order of the fields that they stand for.
  struct Extra {
    uint64_t at = 0, end = 0;
  };
  Extra zip64_extra(uint64_t at, uint64_t bytes) const {
    const uint64_t end = at + bytes;
    while (end - at >= 4) {
      const uint16_t id = number<uint16_t>(at), size = number<uint16_t>(at + 2);
      if (size > end - at - 4) break;
      if (id == 1) return {at + 4, at + 4 + size};
      at += 4 + uint64_t{size};
    }
    return {};
  }
  uint64_t next(Extra& extra, const std::string& name) const {
    if (extra.end - extra.at < 8) fail(cat("its entry '", name, "' does not say where it is"));
    extra.at += 8;
    return number<uint64_t>(extra.at - 8);
  }

  // Behind the local header lies the content.
  void place(ZipEntry& entry, uint64_t local) {
    if (local > begin_ || kLocalBytes > begin_ - local ||
        number<uint32_t>(local) != kLocalSignature)
      fail(cat("its entry '", entry.name, "' is not where its directory says"));
    entry.offset =
        local + kLocalBytes + number<uint16_t>(local + 26) + number<uint16_t>(local + 28);
    if (entry.offset > begin_ || entry.bytes > begin_ - entry.offset)
      fail(cat("its entry '", entry.name, "' leads out of it (is it truncated?)"));
    ranges_.push_back({local, entry.offset + entry.bytes});
    entries_.push_back(std::move(entry));
  }

  void check_overlap() {
    std::ranges::sort(ranges_, {}, &Range::begin);
    for (size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].begin < ranges_[i - 1].end) fail("two of its entries overlap");
    }
  }

  struct Range {
    uint64_t begin, end;
  };
  std::span<const std::byte> archive_;
  std::string_view where_;
  uint64_t begin_ = 0, end_ = 0, count_ = 0;
  std::vector<ZipEntry> entries_;
  std::vector<Range> ranges_;
};

}  // namespace

std::vector<ZipEntry> read_zip_directory(std::span<const std::byte> archive,
                                         std::string_view where) {
  return ZipReader(archive, where).run();
}

}  // namespace tessera
