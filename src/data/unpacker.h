#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {

// Used by text_stream.cpp and the unpackers alone.

// The bytes of a source in order, from any of them on.
class SourceReader {
 public:
  SourceReader(std::shared_ptr<const ByteSource> source, uint64_t offset);

  // Some of the bytes that come next; none only at the end.
  std::span<const uint8_t> ahead();
  void consume(size_t bytes);  // at most ahead().size()
  // Exactly `out.size()` bytes, or false when the source ends before; then all are consumed.
  bool take(std::span<uint8_t> out);
  uint64_t offset() const { return loaded_ - (end_ - begin_); }  // of the next byte
  const ByteSource& source() const { return *source_; }

 private:
  std::shared_ptr<const ByteSource> source_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is left in buffer_
  uint64_t loaded_;             // where the bytes behind buffer_ begin
};

// A place of packed data at which unpacking can begin, and what is needed for it.
struct AccessPoint {
  uint64_t offset = 0;    // of the packed byte
  uint64_t unpacked = 0;  // bytes of text before it
  uint64_t part = 0;      // gzip members, zstd frames or xz streams that ended before it
  bool inside = false;    // it lies inside of such a part: of gzip and xz
  uint8_t bits = 0;       // gzip: bits of the byte before `offset` that come next
  uint64_t check = 0;     // gzip: CRC-32 of the member's text so far; xz: kind of the check
  uint64_t size = 0;      // gzip: bytes of the member's text so far
  std::string window;     // gzip: the text before, up to 32 KiB
};

// Unpacks a source from an access point on.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // Up to `size` bytes, size > 0; 0 only at the end.
  virtual size_t read(char* out, size_t size) = 0;
  // The last access point at or before what read() gives next.
  const std::shared_ptr<const AccessPoint>& point() const { return point_; }
  uint64_t consumed() const { return source_.offset(); }
  // Of what was packed last: its window or dictionary, and what lies around it.
  virtual uint64_t memory_bytes() const { return 0; }

 protected:
  Unpacker(std::shared_ptr<const ByteSource> source, std::shared_ptr<const AccessPoint> point)
      : source_(std::move(source), point->offset), point_(std::move(point)) {}

  // `what` it consists of ("gzip member"), counted from 1; `why` ends the sentence.
  [[noreturn]] void fail_damaged(const char* what, uint64_t part, const char* why) const;
  [[noreturn]] void fail_truncated(const char* what, uint64_t part) const;
  void skip_zeros();

  SourceReader source_;
  std::shared_ptr<const AccessPoint> point_;
};

// Frames of zstd may ask for so much of the text before, and dictionaries of xz may be so large.
constexpr int kWindowLog = 27;

std::unique_ptr<Unpacker> make_gzip_unpacker(std::shared_ptr<const ByteSource> source,
                                             std::shared_ptr<const AccessPoint> point);
std::unique_ptr<Unpacker> make_zstd_unpacker(std::shared_ptr<const ByteSource> source,
                                             std::shared_ptr<const AccessPoint> point);
std::unique_ptr<Unpacker> make_xz_unpacker(std::shared_ptr<const ByteSource> source,
                                           std::shared_ptr<const AccessPoint> point);

}  // namespace tessera
