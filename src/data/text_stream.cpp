#include "data/text_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kRawBytes = size_t{256} << 10;

[[noreturn]] void fail_to_read(const std::filesystem::path& path, int cause) {
  throw UserError(cat("cannot read '", path.string(), "': ", std::strerror(cause)));
}

}  // namespace

struct TextStream::Inflater {
  z_stream z{};
  bool inside_member = true;
  int64_t member = 1;

  Inflater() {
    // 16 + 15: a gzip header is required, the window is the largest the format allows.
    int status = inflateInit2(&z, 16 + 15);
    TESSERA_CHECK(status == Z_OK, "inflateInit2");
  }
  ~Inflater() { inflateEnd(&z); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

TextStream::TextStream(const std::filesystem::path& path) : path_(path), raw_(kRawBytes) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) fail_to_read(path, errno);
  try {
    refill();
    if (end_ >= 2 && raw_[0] == '\x1f' && raw_[1] == '\x8b') {
      inflater_ = std::make_unique<Inflater>();
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

TextStream::~TextStream() { ::close(fd_); }

int64_t TextStream::bytes_consumed() const { return loaded_ - static_cast<int64_t>(end_ - begin_); }

size_t TextStream::read(char* out, size_t size) {
  check_interruption();
  return inflater_ ? read_gzip(out, size) : read_plain(out, size);
}

// Fills raw_ as far as the file goes; a pipe's short reads must not hide the two magic bytes.
void TextStream::refill() {
  begin_ = end_ = 0;
  while (end_ < raw_.size() && !at_end_) {
    ssize_t n = ::read(fd_, raw_.data() + end_, raw_.size() - end_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to_read(path_, errno);
    at_end_ = n == 0;
    end_ += static_cast<size_t>(n);
  }
  loaded_ += static_cast<int64_t>(end_);
}

size_t TextStream::read_plain(char* out, size_t size) {
  if (begin_ == end_ && !at_end_) refill();
  size_t n = std::min(size, end_ - begin_);
  std::memcpy(out, raw_.data() + begin_, n);
  begin_ += n;
  return n;
}

size_t TextStream::read_gzip(char* out, size_t size) {
  z_stream& z = inflater_->z;
  z.next_out = reinterpret_cast<Bytef*>(out);
  z.avail_out = static_cast<uInt>(std::min<size_t>(size, kRawBytes));
  const uInt room = z.avail_out;
  for (;;) {
    if (begin_ == end_ && !at_end_) refill();
    if (!inflater_->inside_member) {
      skip_padding();
      if (begin_ == end_ && at_end_) return 0;
      if (begin_ == end_) continue;
      inflateReset(&z);
      inflater_->inside_member = true;
      ++inflater_->member;
    }
    z.next_in = reinterpret_cast<Bytef*>(raw_.data() + begin_);
    z.avail_in = static_cast<uInt>(end_ - begin_);
    int status = inflate(&z, Z_NO_FLUSH);
    begin_ = end_ - z.avail_in;
    if (status == Z_STREAM_END) inflater_->inside_member = false;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      throw UserError(cat("'", path_.string(), "' is damaged: gzip member ", inflater_->member,
                          ", near byte ", bytes_consumed(), ": ", z.msg ? z.msg : "bad data",
                          "; fetch or compress it again"));
    }
    if (z.avail_out < room) return room - z.avail_out;
    if (status == Z_BUF_ERROR && at_end_) {
      throw UserError(cat("'", path_.string(), "' is truncated: it ends inside gzip member ",
                          inflater_->member, " after ", bytes_consumed(),
                          " bytes; fetch or compress it again"));
    }
  }
}

void TextStream::skip_padding() {
  while (begin_ < end_ && raw_[begin_] == '\0') ++begin_;
}

}  // namespace tessera
