#include <zlib.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/interruption.h"
#include "data/text_stream.h"
#include "data/unpacker.h"

namespace tessera {
namespace {

constexpr size_t kWindowBytes = size_t{32} << 10;
constexpr size_t kTrailerBytes = 8;
constexpr const char* kGzipMember = "gzip member";
// A gzip header is required, and the window is the largest the format allows.
constexpr int kGzipBits = 16 + 15, kRawBits = -15;

// zlib unpacks some 300 MB/s of text, far more than is tokenized. ISA-L takes 0.4 of its time, and
// does not stop between blocks, where access points are.
//
// Inside a member that it began to read at its head zlib checks sums and sizes itself. A member
// that it goes on with is raw data to it, and the sums are ours.
class GzipUnpacker final : public Unpacker {
 public:
  GzipUnpacker(std::shared_ptr<const ByteSource> source, std::shared_ptr<const AccessPoint> point)
      : Unpacker(std::move(source), std::move(point)),
        state_(point_->inside ? State::kMember : State::kBetween),
        raw_(point_->inside),
        part_(point_->part),
        unpacked_(point_->unpacked),
        check_(point_->check),
        size_(point_->size) {
    const int status = inflateInit2(&z_, raw_ ? kRawBits : kGzipBits);
    TESSERA_CHECK(status == Z_OK, "inflateInit2");
    if (!raw_) return;
    if (point_->bits > 0) {
      std::byte before;
      source_.source().read(point_->offset - 1, {&before, 1});
      inflatePrime(&z_, point_->bits, std::to_integer<int>(before) >> (8 - point_->bits));
    }
    inflateSetDictionary(&z_, reinterpret_cast<const Bytef*>(point_->window.data()),
                         static_cast<uInt>(point_->window.size()));
  }
  ~GzipUnpacker() override { inflateEnd(&z_); }

  size_t read(char* out, size_t size) override;

 private:
  enum class State { kBetween, kMember, kTrailer };
  bool begin_member();
  void check_trailer();
  void take_point();

  z_stream z_{};
  State state_;
  bool raw_;
  uint64_t part_;              // members that ended
  uint64_t unpacked_;          // text given out
  uint64_t check_, size_ = 0;  // of the member's text, while it is raw
};

size_t GzipUnpacker::read(char* out, size_t size) {
  z_.next_out = reinterpret_cast<Bytef*>(out);
  z_.avail_out = static_cast<uInt>(std::min<size_t>(size, std::numeric_limits<uInt>::max()));
  const uInt room = z_.avail_out;
  while (z_.avail_out == room) {
    check_interruption();
    if (state_ == State::kTrailer) check_trailer();
    if (state_ == State::kBetween && !begin_member()) return 0;
    const std::span<const uint8_t> next = source_.ahead();
    z_.next_in = const_cast<Bytef*>(next.data());
    z_.avail_in = static_cast<uInt>(next.size());
    const bool due = unpacked_ - point_->unpacked >= kTextPointBytes;
    const int status = inflate(&z_, due ? Z_BLOCK : Z_NO_FLUSH);
    source_.consume(next.size() - z_.avail_in);
    const uInt made = room - z_.avail_out;
    unpacked_ += made;
    if (raw_) {
      check_ = crc32(check_, reinterpret_cast<const Bytef*>(out), made);
      size_ += made;
    }
    if (status == Z_STREAM_END) {
      state_ = raw_ ? State::kTrailer : State::kBetween;
      if (!raw_) ++part_;
    } else if (status == Z_BUF_ERROR && next.empty()) {
      fail_truncated(kGzipMember, part_ + 1);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail_damaged(kGzipMember, part_ + 1, z_.msg ? z_.msg : "bad data");
    } else if (due && (z_.data_type & 0xc0) == 0x80) {
      take_point();  // behind a block that is not the last
    }
  }
  return room - z_.avail_out;
}

// False at the end of the source.
bool GzipUnpacker::begin_member() {
  skip_zeros();
  if (source_.ahead().empty()) return false;
  inflateReset2(&z_, kGzipBits);
  raw_ = false;
  state_ = State::kMember;
  point_ = std::make_shared<AccessPoint>(
      AccessPoint{.offset = source_.offset(), .unpacked = unpacked_, .part = part_});
  return true;
}

// The eight bytes behind a member that was read as raw data.
void GzipUnpacker::check_trailer() {
  std::array<uint8_t, kTrailerBytes> trailer;
  if (!source_.take(trailer)) fail_truncated(kGzipMember, part_ + 1);
  auto number = [&](size_t at) {
    uint32_t n = 0;
    for (size_t i = 0; i < 4; ++i) n |= uint32_t{trailer[at + i]} << (8 * i);
    return n;
  };
  if (number(0) != static_cast<uint32_t>(check_))
    fail_damaged(kGzipMember, part_ + 1, "incorrect data check");
  if (number(4) != static_cast<uint32_t>(size_))
    fail_damaged(kGzipMember, part_ + 1, "incorrect length check");
  ++part_;
  state_ = State::kBetween;
}

void GzipUnpacker::take_point() {
  auto point =
      std::make_shared<AccessPoint>(AccessPoint{.offset = source_.offset(),
                                                .unpacked = unpacked_,
                                                .part = part_,
                                                .inside = true,
                                                .bits = static_cast<uint8_t>(z_.data_type & 7),
                                                .check = raw_ ? check_ : z_.adler,
                                                .size = raw_ ? size_ : z_.total_out,
                                                .window = std::string(kWindowBytes, '\0')});
  uInt size = 0;
  inflateGetDictionary(&z_, reinterpret_cast<Bytef*>(point->window.data()), &size);
  point->window.resize(size);
  point_ = std::move(point);
}

}  // namespace

std::unique_ptr<Unpacker> make_gzip_unpacker(std::shared_ptr<const ByteSource> source,
                                             std::shared_ptr<const AccessPoint> point) {
  return std::make_unique<GzipUnpacker>(std::move(source), std::move(point));
}

}  // namespace tessera
