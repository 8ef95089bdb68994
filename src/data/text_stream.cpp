#include "data/text_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "data/position_bytes.h"
#include "data/unpacker.h"

namespace tessera {
namespace {

constexpr char kTextKind = 't';
constexpr uint64_t kMostText = uint64_t{1} << 62;  // sums of such numbers stay numbers
constexpr size_t kMostWindow = size_t{32} << 10;
constexpr uint64_t kMostXzCheck = 15;

class PlainReader final : public Unpacker {
 public:
  PlainReader(std::shared_ptr<const ByteSource> source, std::shared_ptr<const AccessPoint> point)
      : Unpacker(std::move(source), std::move(point)) {}

  size_t read(char* out, size_t size) override {
    const std::span<const uint8_t> next = source_.ahead();
    const size_t n = std::min(size, next.size());
    if (n > 0) std::memcpy(out, next.data(), n);
    source_.consume(n);
    return n;
  }
};

}  // namespace

TextStream::TextStream(const std::filesystem::path& path)
    : TextStream(std::make_shared<ReadFile>(path)) {}

TextStream::TextStream(std::shared_ptr<const ByteSource> source, std::string_view position)
    : source_(std::move(source)) {
  AccessPoint point;
  uint64_t behind = 0;
  if (position.empty()) {
    codec_ = codec_of(*source_);
  } else {
    behind = restore(position, point);
  }
  unpacked_ = point.unpacked;
  before_ = std::make_shared<AccessPoint>(std::move(point));
  switch (codec_) {
    case Codec::kPlain: unpacker_ = std::make_unique<PlainReader>(source_, before_); break;
    case Codec::kGzip: unpacker_ = make_gzip_unpacker(source_, before_); break;
    case Codec::kZstd: unpacker_ = make_zstd_unpacker(source_, before_); break;
    case Codec::kXz: unpacker_ = make_xz_unpacker(source_, before_); break;
  }
  skip(behind);
}

TextStream::~TextStream() = default;

TextStream::Codec TextStream::codec_of(const ByteSource& source) {
  std::array<uint8_t, 6> head{};
  const auto size = static_cast<size_t>(std::min<uint64_t>(head.size(), source.size()));
  source.read(0, std::as_writable_bytes(std::span(head).first(size)));
  const std::string_view bytes(reinterpret_cast<const char*>(head.data()), size);
  if (bytes.starts_with("\x1f\x8b")) return Codec::kGzip;
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return Codec::kZstd;
  if (size >= 4 && (head[0] & 0xf0) == 0x50 && bytes.substr(1).starts_with("\x2a\x4d\x18"))
    return Codec::kZstd;  // a skippable frame
  if (bytes.starts_with(std::string_view("\xfd\x37zXZ\0", 6))) return Codec::kXz;
  return Codec::kPlain;
}

// Reads what position() wrote; the bytes of text from the access point to the position.
uint64_t TextStream::restore(std::string_view position, AccessPoint& point) {
  const std::string name = source_->name();
  PositionReader reader(position, kTextKind, name);
  if (reader.value(UINT64_MAX) != source_->size()) reader.refuse("the data has another size");
  codec_ = static_cast<Codec>(reader.value(static_cast<uint64_t>(Codec::kXz)));
  point.offset = reader.value(source_->size());
  point.unpacked = reader.value(kMostText);
  const uint64_t behind = reader.value(kMostText);
  if (codec_ == Codec::kPlain) {
    if (point.unpacked != point.offset || behind > 0) reader.refuse("a value is out of range");
  } else {
    point.part = reader.value(kMostText);
    point.inside = reader.value(codec_ == Codec::kZstd ? 0 : 1) != 0;
    if (point.inside) point.check = reader.value(codec_ == Codec::kXz ? kMostXzCheck : UINT32_MAX);
    if (point.inside && codec_ == Codec::kGzip) {
      point.bits = static_cast<uint8_t>(reader.value(point.offset > 0 ? 7 : 0));
      point.size = reader.value(kMostText);
      point.window = reader.bytes(kMostWindow);
    }
  }
  reader.end();
  return behind;
}

void TextStream::skip(uint64_t bytes) {
  std::vector<char> nowhere(static_cast<size_t>(std::min<uint64_t>(bytes, size_t{256} << 10)));
  while (bytes > 0) {
    const size_t n =
        read(nowhere.data(), static_cast<size_t>(std::min<uint64_t>(bytes, nowhere.size())));
    if (n == 0) {
      const std::string name = source_->name();
      throw UserError(cat("'", name,
                          "': cannot go on from the stored position: the text ends "
                          "before it; begin anew, or give the data that it was stored for"));
    }
    bytes -= n;
  }
}

int64_t TextStream::bytes_consumed() const { return static_cast<int64_t>(unpacker_->consumed()); }

int64_t TextStream::memory_bytes() const { return static_cast<int64_t>(unpacker_->memory_bytes()); }

size_t TextStream::read(char* out, size_t size) {
  check_interruption();
  before_ = unpacker_->point();
  const size_t n = unpacker_->read(out, size);
  unpacked_ += n;
  return n;
}

std::string TextStream::position(size_t behind) const {
  const uint64_t at = unpacked_ - behind;
  const AccessPoint& point = at >= unpacker_->point()->unpacked ? *unpacker_->point() : *before_;
  TESSERA_CHECK(behind <= unpacked_ && at >= point.unpacked);
  PositionWriter writer(kTextKind);
  writer.add(source_->size());
  writer.add(static_cast<uint64_t>(codec_));
  if (codec_ == Codec::kPlain) {
    for (uint64_t value : {at, at, uint64_t{0}}) writer.add(value);
    return writer.finish();
  }
  for (uint64_t value : {point.offset, point.unpacked, at - point.unpacked, point.part})
    writer.add(value);
  writer.add(uint64_t{point.inside});
  if (point.inside) writer.add(point.check);
  if (point.inside && codec_ == Codec::kGzip) {
    writer.add(uint64_t{point.bits});
    writer.add(point.size);
    writer.add(std::string_view(point.window));
  }
  return writer.finish();
}

}  // namespace tessera
