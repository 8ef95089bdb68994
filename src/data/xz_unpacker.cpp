#include <lzma.h>

#include <algorithm>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "data/unpacker.h"

namespace tessera {
namespace {

constexpr const char* kStream = "xz stream";
// The dictionary and what liblzma takes beside it.
constexpr uint64_t kMemoryBytes = (uint64_t{1} << kWindowLog) + (uint64_t{1} << 20);

// Walks streams and blocks itself, so that every block can be an access point. A stream that is
// read from its head is held against its index as xz does; of one that is gone on with the index is
// checked for itself.
class XzUnpacker final : public Unpacker {
 public:
  XzUnpacker(std::shared_ptr<const ByteSource> source, std::shared_ptr<const AccessPoint> point)
      : Unpacker(std::move(source), std::move(point)),
        state_(point_->inside ? State::kBlockHead : State::kBetween),
        part_(point_->part),
        unpacked_(point_->unpacked) {
    flags_.check = static_cast<lzma_check>(point_->check);
  }
  ~XzUnpacker() override {
    lzma_end(&coder_);
    lzma_index_hash_end(hash_, nullptr);
  }

  size_t read(char* out, size_t size) override;
  uint64_t memory_bytes() const override { return memory_; }

 private:
  enum class State { kBetween, kBlockHead, kBlock, kEnd };
  bool begin_stream();
  void begin_block();
  void end_stream();
  lzma_vli read_index();
  void take_point(bool inside);
  void take(std::span<uint8_t> out) {
    if (!source_.take(out)) fail_truncated(kStream, part_ + 1);
  }
  void check(lzma_ret status) const;

  State state_;
  lzma_stream coder_ = LZMA_STREAM_INIT;
  lzma_stream_flags flags_{};        // of the stream's head
  lzma_index_hash* hash_ = nullptr;  // of its blocks, if it was read from its head
  lzma_block block_{};
  std::array<lzma_filter, LZMA_FILTERS_MAX + 1> filters_{};
  uint64_t memory_ = 0;  // of the block's decoder
  uint64_t part_;        // streams that ended
  uint64_t unpacked_;    // text given out
};

size_t XzUnpacker::read(char* out, size_t size) {
  coder_.next_out = reinterpret_cast<uint8_t*>(out);
  coder_.avail_out = size;
  while (coder_.avail_out == size) {
    check_interruption();
    if (state_ == State::kBetween && !begin_stream()) return 0;
    if (state_ == State::kBlockHead) begin_block();
    if (state_ == State::kEnd) {
      end_stream();
      continue;
    }
    coder_.next_out = reinterpret_cast<uint8_t*>(out);
    coder_.avail_out = size;
    const std::span<const uint8_t> next = source_.ahead();
    coder_.next_in = next.data();
    coder_.avail_in = next.size();
    const lzma_ret status = lzma_code(&coder_, LZMA_RUN);
    source_.consume(next.size() - coder_.avail_in);
    unpacked_ += size - coder_.avail_out;
    if (status == LZMA_STREAM_END) {
      if (hash_) {
        check(lzma_index_hash_append(hash_, lzma_block_unpadded_size(&block_),
                                     block_.uncompressed_size));
      }
      state_ = State::kBlockHead;
    } else if (next.empty() && coder_.avail_out == size) {
      fail_truncated(kStream, part_ + 1);
    } else if (status != LZMA_BUF_ERROR) {
      check(status);
    }
  }
  return size - coder_.avail_out;
}

// False at the end of the source.
bool XzUnpacker::begin_stream() {
  skip_zeros();
  if (source_.ahead().empty()) return false;
  take_point(false);
  std::array<uint8_t, LZMA_STREAM_HEADER_SIZE> header;
  take(header);
  check(lzma_stream_header_decode(&flags_, header.data()));
  lzma_index_hash* hash = lzma_index_hash_init(hash_, nullptr);
  if (!hash) throw std::bad_alloc();
  hash_ = hash;
  state_ = State::kBlockHead;
  return true;
}

// Or finds that there is no block any more.
void XzUnpacker::begin_block() {
  const std::span<const uint8_t> next = source_.ahead();
  if (next.empty()) fail_truncated(kStream, part_ + 1);
  if (next[0] == 0) {
    state_ = State::kEnd;
    return;
  }
  take_point(true);
  std::array<uint8_t, LZMA_BLOCK_HEADER_SIZE_MAX> header;
  block_ = {};
  block_.version = 1;
  block_.check = flags_.check;
  block_.filters = filters_.data();
  block_.header_size = lzma_block_header_size_decode(next[0]);
  take(std::span(header).first(block_.header_size));
  check(lzma_block_header_decode(&block_, nullptr, header.data()));
  memory_ = lzma_raw_decoder_memusage(filters_.data());
  const lzma_ret status = memory_ > kMemoryBytes && memory_ != UINT64_MAX
                              ? LZMA_MEMLIMIT_ERROR
                              : lzma_block_decoder(&coder_, &block_);
  lzma_filters_free(filters_.data(), nullptr);
  check(status);
  state_ = State::kBlock;
}

// The index, and the footer that ends the stream.
void XzUnpacker::end_stream() {
  lzma_stream_flags footer{};
  const lzma_vli index_size = read_index();
  std::array<uint8_t, LZMA_STREAM_HEADER_SIZE> bytes;
  take(bytes);
  check(lzma_stream_footer_decode(&footer, bytes.data()));
  if (footer.backward_size != index_size || footer.check != flags_.check) check(LZMA_DATA_ERROR);
  lzma_index_hash_end(hash_, nullptr);
  hash_ = nullptr;
  ++part_;
  state_ = State::kBetween;
}

// Its size.
lzma_vli XzUnpacker::read_index() {
  lzma_index* index = nullptr;
  if (!hash_) check(lzma_index_decoder(&coder_, &index, kMemoryBytes));
  for (lzma_ret status = LZMA_OK; status != LZMA_STREAM_END;) {
    check_interruption();
    const std::span<const uint8_t> next = source_.ahead();
    if (next.empty()) fail_truncated(kStream, part_ + 1);
    size_t used = 0;
    if (hash_) {
      status = lzma_index_hash_decode(hash_, next.data(), &used, next.size());
    } else {
      coder_.next_in = next.data();
      coder_.avail_in = next.size();
      status = lzma_code(&coder_, LZMA_RUN);
      used = next.size() - coder_.avail_in;
    }
    source_.consume(used);
    if (status != LZMA_STREAM_END) check(status);
  }
  const lzma_vli size = hash_ ? lzma_index_hash_size(hash_) : lzma_index_size(index);
  lzma_index_end(index, nullptr);
  return size;
}

void XzUnpacker::take_point(bool inside) {
  if (point_->offset == source_.offset() && point_->inside == inside) return;
  point_ = std::make_shared<AccessPoint>(
      AccessPoint{.offset = source_.offset(),
                  .unpacked = unpacked_,
                  .part = part_,
                  .inside = inside,
                  .check = inside ? static_cast<uint64_t>(flags_.check) : 0});
}

void XzUnpacker::check(lzma_ret status) const {
  const std::string name = source_.source().name();
  switch (status) {
    case LZMA_OK: return;
    case LZMA_MEMLIMIT_ERROR:
      throw UserError(
          cat("'", name, "': xz stream ", part_ + 1, " needs a dictionary of more than ",
              format_bytes(int64_t{1} << kWindowLog), ": compress it again with xz -9 or less"));
    case LZMA_OPTIONS_ERROR:
      throw UserError(cat("'", name, "': xz stream ", part_ + 1, " uses what liblzma ",
                          lzma_version_string(),
                          " does not know: compress it again with plain xz"));
    case LZMA_MEM_ERROR: throw std::bad_alloc();
    case LZMA_FORMAT_ERROR: fail_damaged(kStream, part_ + 1, "no xz data");
    default: fail_damaged(kStream, part_ + 1, "bad data");
  }
}

}  // namespace

std::unique_ptr<Unpacker> make_xz_unpacker(std::shared_ptr<const ByteSource> source,
                                           std::shared_ptr<const AccessPoint> point) {
  return std::make_unique<XzUnpacker>(std::move(source), std::move(point));
}

}  // namespace tessera
