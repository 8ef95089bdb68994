#pragma once
#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"

namespace tessera {

// Text as the programs of the formats pack it.

inline std::string gzip(std::string_view text, int level = 6) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, level, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// One frame with a checksum; window_log 0: the level's.
inline std::string zstd(std::string_view text, int level = 3, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  // As a stream, so that the size of the text is not known and the window stands in the frame.
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_inBuffer from{text.data(), text.size(), 0};
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_flush), 0u);
  EXPECT_EQ(ZSTD_compressStream2(context, &to, &from, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

inline std::string zstd_skippable(std::string_view content, int kind = 0) {
  std::string out(8, '\0');
  const uint32_t magic = 0x184D2A50u + static_cast<uint32_t>(kind);
  const auto size = static_cast<uint32_t>(content.size());
  std::memcpy(out.data(), &magic, 4);
  std::memcpy(out.data() + 4, &size, 4);
  return out + std::string(content);
}

// One stream with a block for every `block` bytes.
inline std::string xz(std::string_view text, size_t block = SIZE_MAX,
                      uint32_t dictionary = uint32_t{1} << 20,
                      lzma_check check = LZMA_CHECK_CRC64) {
  lzma_options_lzma options;
  lzma_lzma_preset(&options, 1);
  options.dict_size = dictionary;
  lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  lzma_stream coder = LZMA_STREAM_INIT;
  EXPECT_EQ(lzma_stream_encoder(&coder, filters, check), LZMA_OK);
  std::string out(lzma_stream_buffer_bound(text.size()) + 4096 + text.size() / block * 256, '\0');
  coder.next_out = reinterpret_cast<uint8_t*>(out.data());
  coder.avail_out = out.size();
  do {
    const std::string_view piece = text.substr(0, block);
    text.remove_prefix(piece.size());
    coder.next_in = reinterpret_cast<const uint8_t*>(piece.data());
    coder.avail_in = piece.size();
    EXPECT_EQ(lzma_code(&coder, text.empty() ? LZMA_FINISH : LZMA_FULL_FLUSH), LZMA_STREAM_END);
  } while (!text.empty());
  out.resize(coder.total_out);
  lzma_end(&coder);
  return out;
}

// Text that does not compress, so that what is packed spans many reads.
inline std::string noise(size_t size) {
  std::string text;
  for (uint64_t i = 0; text.size() < size; ++i) {
    for (uint32_t word : philox(1, 2, i)) {
      for (int draw = 0; draw < 4; ++draw, word >>= 8) text += static_cast<char>('!' + word % 90);
    }
  }
  text.resize(size);
  return text;
}

// Words, which compress as text does.
inline std::string prose(size_t size) {
  static const char* const kWords[] = {"the ", "of ",      "window", "ing ",
                                       "a ",   "stream\n", "7",      "qu"};
  std::string text;
  for (uint64_t i = 0; text.size() < size; ++i) {
    for (uint32_t word : philox(3, 4, i)) {
      for (int draw = 0; draw < 5; ++draw, word >>= 6) {
        if (word % 64 < 48) {
          text += kWords[word % 8];
        } else {
          text += static_cast<char>('a' + word % 26);
        }
      }
    }
  }
  text.resize(size);
  return text;
}

// Bytes in memory that remember what was asked of them.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string content, std::string name = "memory")
      : content_(std::move(content)), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  uint64_t size() const override { return content_.size(); }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > content_.size() || out.size() > content_.size() - offset)
      throw UserError("read past the end of '" + name_ + "'");
    first_ = std::min(first_, offset);
    read_ += out.size();
    std::memcpy(out.data(), content_.data() + offset, out.size());
  }

  uint64_t first() const { return first_; }  // the lowest offset that was read
  uint64_t bytes_read() const { return read_; }

 private:
  std::string content_, name_;
  mutable uint64_t first_ = UINT64_MAX, read_ = 0;
};

}  // namespace tessera
