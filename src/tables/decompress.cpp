#include "tables/decompress.h"

#include <brotli/decode.h>
#include <lz4.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/text.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

const char* as_chars(std::span<const std::byte> in) {
  return reinterpret_cast<const char*>(in.data());
}

// To how many bytes one byte can unpack at most; where there is no such bound, the caller's limit
// has to do.
uint64_t largest_ratio(Codec codec) {
  switch (codec) {
    case Codec::kSnappy: return 64;           // a copy of 64 bytes takes two
    case Codec::kGzip: return 1032;           // 258 bytes in two bits
    case Codec::kLz4Block: return 256;        // 255 bytes more for each byte of a length
    case Codec::kLz4Frame: return 256;        //
    case Codec::kZstd: return 128 * 1024;     // a block of 128 KiB takes three bytes and more
    case Codec::kBrotli: return 1ull << 32u;  // 16 MiB in some bits
    case Codec::kNone: break;
  }
  return 1;
}

// All of these fill `out` and return whether the data is whole and of just this size.

bool unpack_snappy(std::span<const std::byte> in, std::span<std::byte> out) {
  size_t size = 0;
  return snappy::GetUncompressedLength(as_chars(in), in.size(), &size) && size == out.size() &&
         snappy::RawUncompress(as_chars(in), in.size(), reinterpret_cast<char*>(out.data()));
}

// One or several gzip members, or a zlib stream.
bool unpack_gzip(std::span<const std::byte> in, std::span<std::byte> out) {
  z_stream z{};
  if (inflateInit2(&z, 32 + 15) != Z_OK) throw Damaged("zlib cannot be started");
  std::unique_ptr<z_stream, int (*)(z_stream*)> end(&z, inflateEnd);
  Bytef none = 0;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = out.empty() ? &none : reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  for (;;) {
    int status = inflate(&z, Z_FINISH);
    if (status != Z_STREAM_END) return false;
    if (z.avail_in == 0 || z.avail_out == 0) return z.avail_out == 0;
    inflateReset(&z);
  }
}

bool unpack_brotli(std::span<const std::byte> in, std::span<std::byte> out) {
  size_t size = out.size();
  uint8_t none = 0;
  auto* to = out.empty() ? &none : reinterpret_cast<uint8_t*>(out.data());
  auto status =
      BrotliDecoderDecompress(in.size(), reinterpret_cast<const uint8_t*>(in.data()), &size, to);
  return status == BROTLI_DECODER_RESULT_SUCCESS && size == out.size();
}

bool unpack_zstd(std::span<const std::byte> in, std::span<std::byte> out) {
  size_t size = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
  return ZSTD_isError(size) == 0 && size == out.size();
}

bool unpack_lz4_block(std::span<const std::byte> in, std::span<std::byte> out) {
  int size = LZ4_decompress_safe(as_chars(in), reinterpret_cast<char*>(out.data()),
                                 static_cast<int>(in.size()), static_cast<int>(out.size()));
  return size >= 0 && static_cast<size_t>(size) == out.size();
}

bool unpack_lz4_frame(std::span<const std::byte> in, std::span<std::byte> out) {
  LZ4F_dctx* context = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
    throw Damaged("lz4 cannot be started");
  std::unique_ptr<LZ4F_dctx, LZ4F_errorCode_t (*)(LZ4F_dctx*)> end(context,
                                                                   LZ4F_freeDecompressionContext);
  for (;;) {
    size_t taken = in.size(), given = out.size();
    size_t hint = LZ4F_decompress(context, out.data(), &given, in.data(), &taken, nullptr);
    if (LZ4F_isError(hint)) return false;
    in = in.subspan(taken);
    out = out.subspan(given);
    if (hint == 0) return out.empty();
    if (taken == 0 && given == 0) return false;
  }
}

bool unpack(Codec codec, std::span<const std::byte> in, std::span<std::byte> out) {
  switch (codec) {
    case Codec::kSnappy: return unpack_snappy(in, out);
    case Codec::kGzip: return unpack_gzip(in, out);
    case Codec::kBrotli: return unpack_brotli(in, out);
    case Codec::kZstd: return unpack_zstd(in, out);
    case Codec::kLz4Block: return unpack_lz4_block(in, out);
    case Codec::kLz4Frame: return unpack_lz4_frame(in, out);
    case Codec::kNone: break;
  }
  if (in.size() != out.size()) return false;
  std::copy(in.begin(), in.end(), out.begin());
  return true;
}

}  // namespace

void decompress(Codec codec, std::span<const std::byte> in, uint64_t raw_size, uint64_t limit,
                ByteBuffer& out) {
  constexpr uint64_t kSizes = std::numeric_limits<int32_t>::max();  // of the libraries' interfaces
  limit = std::min(limit, kSizes);
  if (raw_size > limit || in.size() > kSizes) {
    throw Unsupported(cat(in.size(), " packed bytes would take ", raw_size, " unpacked, and ",
                          limit,
                          " is the most that is read; write the file again with smaller "
                          "pages or batches"));
  }
  if (raw_size / largest_ratio(codec) > in.size()) {
    throw Damaged(cat(in.size(), " packed bytes cannot be ", raw_size, " unpacked"));
  }
  out.resize(static_cast<size_t>(raw_size));
  if (in.empty() && raw_size == 0) return;
  if (!unpack(codec, in, out.bytes())) {
    throw Damaged(cat(in.size(), " packed bytes do not unpack to ", raw_size));
  }
}

}  // namespace tessera
