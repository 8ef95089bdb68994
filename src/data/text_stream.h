#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace tessera {

struct AccessPoint;
class Unpacker;

// Access points of gzip lie about so far apart in the text.
constexpr uint64_t kTextPointBytes = uint64_t{1} << 20;

// The bytes of a source, unpacked if it is packed. Recognised by the first bytes, never by a name:
//   gzip (RFC 1952)  any number of members back to back, zeros allowed between and after them
//   zstd (RFC 8878)  any number of frames, skippable ones too; without a dictionary; a window of
//                    at most 128 MiB (all of zstd -1 to -19; --long up to 27)
//   xz               any number of streams, zeros allowed between and after them; a dictionary of
//                    at most 128 MiB (all of xz -0 to -9)
// All sums that the formats hold are checked. UserError naming the source where it cannot be read,
// ends inside one of those, is damaged or needs more memory.
//
// Positions. A stream that begins at a position gives the very next byte and reads nothing of the
// source before the access point that the position holds (gzip: and one byte more). From there to
// the position it unpacks and forgets:
//   plain  nothing: a position is an offset
//   gzip   at most 1 MiB of text and one deflate block: gzip's have up to 16 Ki symbols, which is
//          some 100 KB of text, and 4 MiB at worst
//   zstd   from the start of the frame: of a file of one frame all that was read. pzstd, `zstd -B`
//          of several files and writers of shards make many frames
//   xz     from the start of the block: of a file of one block all that was read. `xz -T` and
//          `--block-size` make many blocks
// A position takes some 100 bytes; inside a gzip member up to 32 KiB more, the text before.
class TextStream {
 public:
  // From the beginning, or from a position of a stream over the same bytes. A position holds the
  // size of the source and the format; that these are the same bytes is up to the caller. UserError
  // where the position is damaged, or does not fit the source.
  explicit TextStream(std::shared_ptr<const ByteSource> source, std::string_view position = {});
  explicit TextStream(const std::filesystem::path& path);
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  // Up to `size` bytes, size > 0; 0 only at the end. Interrupted when that is requested.
  size_t read(char* out, size_t size);
  // Where the next byte is, or that `behind` bytes before it: at most what the last read() gave.
  std::string position(size_t behind = 0) const;
  // Bytes of text before the next one, counted from the beginning of the source.
  uint64_t offset() const { return unpacked_; }
  // Bytes of the source itself consumed so far, those before a position counted.
  int64_t bytes_consumed() const;
  // What unpacks takes so much beside buffers, as of the last read().
  int64_t memory_bytes() const;

 private:
  enum class Codec : uint8_t { kPlain, kGzip, kZstd, kXz };
  static Codec codec_of(const ByteSource& source);
  uint64_t restore(std::string_view position, AccessPoint& point);
  void skip(uint64_t bytes);

  std::shared_ptr<const ByteSource> source_;
  Codec codec_ = Codec::kPlain;
  std::unique_ptr<Unpacker> unpacker_;
  std::shared_ptr<const AccessPoint> before_;  // what the last read() gave lies behind it
  uint64_t unpacked_ = 0;
};

}  // namespace tessera
