#include "runtime/memory.h"

#include <sys/mman.h>

#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

HostBuffer::HostBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw DeviceError(cat("out of memory: cannot allocate ", format_bytes(bytes), " on the host"));
  // Only a hint: without huge pages the program runs all the same.
  if (bytes >= (1 << 21)) ::madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

HostBuffer::HostBuffer(std::byte* data, int64_t bytes, std::function<void()> release)
    : data_(data), bytes_(bytes), release_(std::move(release)) {}

HostBuffer::~HostBuffer() {
  if (release_) {
    release_();
  } else if (data_) {
    ::munmap(data_, static_cast<size_t>(bytes_));
  }
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      release_(std::exchange(other.release_, nullptr)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(release_, other.release_);
  return *this;
}

}  // namespace tessera
