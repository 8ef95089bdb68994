#include "data/unpacker.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;

}  // namespace

SourceReader::SourceReader(std::shared_ptr<const ByteSource> source, uint64_t offset)
    : source_(std::move(source)),
      buffer_(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, source_->size() - offset))),
      loaded_(offset) {}

std::span<const uint8_t> SourceReader::ahead() {
  if (begin_ == end_) {
    begin_ = 0;
    end_ = static_cast<size_t>(std::min<uint64_t>(buffer_.size(), source_->size() - loaded_));
    if (end_ > 0) source_->read(loaded_, std::as_writable_bytes(std::span(buffer_).first(end_)));
    loaded_ += end_;
  }
  return std::span<const uint8_t>(buffer_).subspan(begin_, end_ - begin_);
}

void SourceReader::consume(size_t bytes) { begin_ += bytes; }

bool SourceReader::take(std::span<uint8_t> out) {
  while (!out.empty()) {
    const std::span<const uint8_t> next = ahead();
    if (next.empty()) return false;
    const size_t n = std::min(next.size(), out.size());
    std::memcpy(out.data(), next.data(), n);
    consume(n);
    out = out.subspan(n);
  }
  return true;
}

void Unpacker::fail_damaged(const char* what, uint64_t part, const char* why) const {
  throw UserError(cat("'", source_.source().name(), "' is damaged: ", what, " ", part,
                      ", near byte ", consumed(), ": ", why, "; fetch or compress it again"));
}

void Unpacker::fail_truncated(const char* what, uint64_t part) const {
  throw UserError(cat("'", source_.source().name(), "' is truncated: it ends inside ", what, " ",
                      part, " after ", consumed(), " bytes; fetch or compress it again"));
}

void Unpacker::skip_zeros() {
  for (;;) {
    check_interruption();
    const std::span<const uint8_t> next = source_.ahead();
    const auto zeros = std::ranges::find_if(next, [](uint8_t b) { return b != 0; }) - next.begin();
    source_.consume(static_cast<size_t>(zeros));
    if (next.empty() || static_cast<size_t>(zeros) < next.size()) return;
  }
}

}  // namespace tessera
