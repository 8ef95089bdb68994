#include "comm/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "comm/exchange.h"

namespace tessera {
namespace {

// What is mapped of the peers' memory counts as resident here too, though it takes none: after so
// many bytes read the mappings are emptied. Their pages come back as they are touched.
constexpr int64_t kMostRead = 16 << 20;

constexpr int64_t kControlBytes = (sizeof(ControlPage) + 4095) / 4096 * 4096;

DeviceError no_memory(int64_t bytes, const char* call) {
  return DeviceError(cat("cannot allocate ", format_bytes(bytes),
                         " of memory shared by the ranks of ", "this host: ", call, ": ",
                         std::strerror(errno)));
}

FileDescriptor new_segment(int64_t bytes) {
  FileDescriptor fd(::memfd_create("tessera", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw no_memory(bytes, "memfd_create");
  if (::ftruncate(fd.get(), bytes) != 0) throw no_memory(bytes, "ftruncate");
  // Now, and as an error: later it would be a bus error in the middle of a step.
  errno = ::posix_fallocate(fd.get(), 0, bytes);
  if (errno != 0) throw no_memory(bytes, "posix_fallocate");
  // Nobody can make it shorter under the others' feet.
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

}  // namespace

SharedSegments::Mapping::Mapping(const FileDescriptor& fd, int64_t bytes, int protection)
    : bytes_(bytes) {
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) throw no_memory(bytes, "mmap");
  data_ = static_cast<std::byte*>(p);
  // Only a hint.
  if (bytes >= (1 << 21)) ::madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

void SharedSegments::Mapping::forget_pages() {
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED);
}

SharedSegments::Mapping::~Mapping() { ::munmap(data_, static_cast<size_t>(bytes_)); }

SharedSegments::SharedSegments(PeerMesh& mesh, std::vector<bool> local)
    : mesh_(mesh), local_(std::move(local)), first_(local_.size()) {
  int64_t bytes = kControlBytes + 2 * round_bytes(mesh_.world_size());
  first_[static_cast<size_t>(mesh_.rank())] = add_own(0, bytes);
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    if (rank == mesh_.rank() || !holds(rank)) continue;
    Mapping& theirs = mapping(rank, 0);
    if (theirs.bytes() != bytes)
      throw CommError(cat("rank ", rank, " shares ", theirs.bytes(), " bytes and not ", bytes,
                          ": it is another version of the program"));
    first_[static_cast<size_t>(rank)] = theirs.data();
  }
}

ControlPage& SharedSegments::control(int rank) {
  return *reinterpret_cast<ControlPage*>(first_[static_cast<size_t>(rank)]);
}

std::byte* SharedSegments::staging(int rank) {
  return first_[static_cast<size_t>(rank)] + kControlBytes;
}

std::byte* SharedSegments::add_own(int64_t segment, int64_t bytes) {
  FileDescriptor fd = new_segment(bytes);
  std::byte* data;
  {
    std::lock_guard lock(mutex_);
    data = own_.try_emplace(segment, fd, bytes, PROT_READ | PROT_WRITE).first->second.data();
  }
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    if (rank == mesh_.rank() || !holds(rank)) continue;
    mesh_.send(rank, PeerMesh::Kind::kSegment, static_cast<uint64_t>(segment),
               std::to_string(bytes), fd.get());
  }
  return data;
}

HostBuffer SharedSegments::allocate(int64_t bytes) {
  if (bytes == 0) return HostBuffer();
  int64_t segment = next_segment_++;
  std::byte* data = add_own(segment, bytes);
  return HostBuffer(data, bytes, [this, segment] { drop_own(segment); });
}

void SharedSegments::drop_own(int64_t segment) {
  {
    std::lock_guard lock(mutex_);
    own_.erase(segment);
  }
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    if (rank == mesh_.rank() || !holds(rank)) continue;
    // Who has gone has taken its mapping along.
    mesh_.try_send(rank, PeerMesh::Kind::kDrop, static_cast<uint64_t>(segment), "");
  }
}

Location SharedSegments::find(const void* data, int64_t bytes) {
  unmap_dropped();
  const auto* begin = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  for (const auto& [segment, mapping] : own_) {
    if (begin >= mapping.data() && begin + bytes <= mapping.data() + mapping.bytes())
      return {segment, begin - mapping.data()};
  }
  return {};
}

const std::byte* SharedSegments::resolve(int rank, const Location& location, int64_t bytes) {
  Mapping& theirs = mapping(rank, location.segment);
  if (location.offset < 0 || bytes > theirs.bytes() - location.offset)
    throw CommError(cat("rank ", rank, " names bytes outside its shared memory"));
  read_ += bytes;
  if (read_ > kMostRead) {
    for (auto& [key, mapping] : peers_) {
      if (key.second != 0) mapping.forget_pages();
    }
    read_ = bytes;
  }
  return theirs.data() + location.offset;
}

SharedSegments::Mapping& SharedSegments::mapping(int rank, int64_t segment) {
  auto it = peers_.find({rank, segment});
  if (it != peers_.end()) return it->second;
  PeerMesh::Message message =
      mesh_.receive(rank, PeerMesh::Kind::kSegment, static_cast<uint64_t>(segment));
  int64_t bytes = 0;
  std::from_chars(message.payload.data(), message.payload.data() + message.payload.size(), bytes);
  if (bytes <= 0 || !message.descriptor)
    throw CommError(cat("rank ", rank, " did not pass its shared memory"));
  // The counters are written by others too: they count who sleeps.
  int protection = segment == 0 ? PROT_READ | PROT_WRITE : PROT_READ;
  return peers_.try_emplace({rank, segment}, message.descriptor, bytes, protection).first->second;
}

void SharedSegments::unmap_dropped() {
  for (auto [rank, segment] : mesh_.dropped()) {
    // One that was never read is still on its way to the map.
    if (peers_.erase({rank, static_cast<int64_t>(segment)}) == 0)
      mesh_.receive(rank, PeerMesh::Kind::kSegment, segment);
  }
}

}  // namespace tessera
