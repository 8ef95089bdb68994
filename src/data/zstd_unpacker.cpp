#include <zstd.h>
#include <zstd_errors.h>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "data/unpacker.h"

namespace tessera {
namespace {

constexpr const char* kFrame = "zstd frame";

class ZstdUnpacker final : public Unpacker {
 public:
  ZstdUnpacker(std::shared_ptr<const ByteSource> source, std::shared_ptr<const AccessPoint> point)
      : Unpacker(std::move(source), std::move(point)),
        context_(ZSTD_createDCtx()),
        part_(point_->part),
        unpacked_(point_->unpacked) {
    TESSERA_CHECK(context_ != nullptr, "ZSTD_createDCtx");
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kWindowLog);
  }
  ~ZstdUnpacker() override { ZSTD_freeDCtx(context_); }

  size_t read(char* out, size_t size) override;
  uint64_t memory_bytes() const override { return ZSTD_sizeof_DCtx(context_); }

 private:
  [[noreturn]] void fail(size_t status) const;

  ZSTD_DCtx* context_;
  bool between_ = true;  // frames
  uint64_t part_;        // frames that ended, skippable ones too
  uint64_t unpacked_;    // text given out
};

size_t ZstdUnpacker::read(char* out, size_t size) {
  ZSTD_outBuffer to{out, size, 0};
  while (to.pos == 0) {
    check_interruption();
    const std::span<const uint8_t> next = source_.ahead();
    if (between_) {
      if (next.empty()) return 0;
      if (point_->offset != source_.offset()) {
        point_ = std::make_shared<AccessPoint>(
            AccessPoint{.offset = source_.offset(), .unpacked = unpacked_, .part = part_});
      }
    }
    ZSTD_inBuffer from{next.data(), next.size(), 0};
    const size_t status = ZSTD_decompressStream(context_, &to, &from);
    if (ZSTD_isError(status)) fail(status);
    source_.consume(from.pos);
    unpacked_ += to.pos;
    between_ = status == 0;
    part_ += between_ ? 1 : 0;
    if (next.empty() && to.pos == 0 && !between_) fail_truncated(kFrame, part_ + 1);
  }
  return to.pos;
}

void ZstdUnpacker::fail(size_t status) const {
  const std::string name = source_.source().name();
  switch (ZSTD_getErrorCode(status)) {
    case ZSTD_error_frameParameter_windowTooLarge:
      throw UserError(cat("'", name, "': zstd frame ", part_ + 1, " needs more than ",
                          format_bytes(int64_t{1} << kWindowLog),
                          " of the text before: compress it again without --ultra and --long, or "
                          "with --long=",
                          kWindowLog));
    case ZSTD_error_dictionary_wrong:
      throw UserError(cat("'", name, "': zstd frame ", part_ + 1,
                          " needs a dictionary, which cannot be given: compress it again without"));
    case ZSTD_error_memory_allocation: throw std::bad_alloc();
    default: fail_damaged(kFrame, part_ + 1, ZSTD_getErrorName(status));
  }
}

}  // namespace

std::unique_ptr<Unpacker> make_zstd_unpacker(std::shared_ptr<const ByteSource> source,
                                             std::shared_ptr<const AccessPoint> point) {
  return std::make_unique<ZstdUnpacker>(std::move(source), std::move(point));
}

}  // namespace tessera
