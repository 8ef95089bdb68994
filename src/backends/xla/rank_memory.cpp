#include "backends/xla/rank_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

constexpr int64_t kPage = 1 << 12;

HostBuffer map_file(int file, int64_t offset, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
  if (at == MAP_FAILED)
    throw DeviceError(
        cat("cannot map ", format_bytes(bytes), " of a rank's memory: ", std::strerror(errno)));
  return {static_cast<std::byte*>(at), bytes, [at, size] { ::munmap(at, size); }};
}

}  // namespace

RankMemory::RankMemory(bool shared) : shared_(shared) {
  if (!shared_) return;
  file_ = ::memfd_create("tessera state", MFD_CLOEXEC);
  if (file_ < 0) throw DeviceError(cat("no shared memory for XLA: ", std::strerror(errno)));
}

RankMemory::~RankMemory() {
  if (file_ >= 0) ::close(file_);
}

std::byte* RankMemory::allocate(int64_t bytes) {
  // Also of nothing: an address that is the tensor's own.
  const int64_t whole = std::max((bytes + kPage - 1) / kPage, int64_t{1}) * kPage;
  Part part;
  if (shared_) {
    if (::ftruncate(file_, end_ + whole) != 0)
      throw DeviceError(cat("out of memory: cannot allocate ", format_bytes(bytes),
                            " that ranks share: ", std::strerror(errno)));
    part = {map_file(file_, end_, whole), end_};
    end_ += whole;
  } else {
    part = {HostBuffer(whole), 0};
  }
  std::byte* data = part.buffer.data();
  parts_.emplace(data, std::move(part));
  return data;
}

std::string RankMemory::place(const std::byte* data) const {
  const Part& part = parts_.at(data);
  return cat("/proc/", ::getpid(), "/fd/", file_, " ", part.offset, " ", part.buffer.bytes());
}

std::byte* MappedMemory::map(const std::string& place) {
  if (auto known = mapped_.find(place); known != mapped_.end()) return known->second.data();
  std::istringstream words(place);
  std::string path;
  int64_t offset = 0, bytes = 0;
  words >> path >> offset >> bytes;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0)
    throw DeviceError(cat("the memory of another rank cannot be reached at ", path, ": ",
                          std::strerror(errno),
                          "; all ranks of XLA's CPU must be processes of one user and one host"));
  HostBuffer buffer;
  try {
    buffer = map_file(file, offset, bytes);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
  return mapped_.emplace(place, std::move(buffer)).first->second.data();
}

}  // namespace tessera::xla
