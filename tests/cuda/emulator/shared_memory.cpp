#include "shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <random>
#include <string>

namespace tessera::emulated_gpu {
namespace {

constexpr int64_t kPage = 4096;
constexpr char kMagic[8] = "tessera";

// What a handle holds.
struct Named {
  char magic[8];
  int32_t process, file, device;
  int64_t bytes, pages;
  uint64_t serial;
};
static_assert(sizeof(Named) <= sizeof(cuda::CUipcMemHandle));
Named named(const cuda::CUipcMemHandle& handle) {
  Named n;
  std::memcpy(&n, handle.reserved, sizeof n);
  if (std::memcmp(n.magic, kMagic, sizeof kMagic) != 0) return {};
  return n;
}

}  // namespace

struct SharedMemory::Use {
  std::atomic<uint64_t> serial;
  std::atomic<int32_t> opened, ended;
};

bool SharedMemory::map_use() {
  void* place = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_, pages_);
  if (place == MAP_FAILED) return false;
  use_ = static_cast<Use*>(place);
  return true;
}

std::shared_ptr<SharedMemory> SharedMemory::share(std::byte* begin, int64_t bytes, int64_t pages) {
  std::shared_ptr<SharedMemory> made(new SharedMemory);
  made->begin_ = begin;
  made->bytes_ = bytes;
  made->pages_ = pages;
  made->file_ = memfd_create("tessera-emulated-gpu", MFD_CLOEXEC);
  if (made->file_ < 0 || ftruncate(made->file_, pages + kPage) != 0 || !made->map_use()) {
    return nullptr;
  }
  for (int64_t done = 0; done < bytes;) {
    const ssize_t wrote =
        pwrite(made->file_, begin + done, static_cast<size_t>(bytes - done), done);
    if (wrote <= 0) return nullptr;
    done += wrote;
  }
  if (mmap(begin, static_cast<size_t>(pages), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           made->file_, 0) == MAP_FAILED) {
    return nullptr;
  }
  std::random_device random;
  made->serial_ = uint64_t{random()} << 32 | random();
  made->use_->serial = made->serial_;
  return made;
}

std::shared_ptr<SharedMemory> SharedMemory::open(const cuda::CUipcMemHandle& handle) {
  const Named n = named(handle);
  const std::string path = "/proc/" + std::to_string(n.process) + "/fd/" + std::to_string(n.file);
  std::shared_ptr<SharedMemory> made(new SharedMemory);
  made->bytes_ = n.bytes;
  made->pages_ = n.pages;
  made->serial_ = n.serial;
  made->opened_by_ = handle;
  made->file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat facts {};
  if (made->file_ < 0 || fstat(made->file_, &facts) != 0 || facts.st_size != n.pages + kPage ||
      !made->map_use() || made->use_->serial != n.serial || made->use_->ended) {
    return nullptr;
  }
  void* place = mmap(nullptr, static_cast<size_t>(made->mapped()), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED || mmap(place, static_cast<size_t>(n.pages), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_FIXED, made->file_, 0) == MAP_FAILED) {
    return nullptr;
  }
  made->begin_ = static_cast<std::byte*>(place);
  made->use_->opened++;
  return made;
}

SharedMemory::~SharedMemory() {
  if (use_) munmap(use_, kPage);
  if (file_ >= 0) ::close(file_);
}

cuda::CUipcMemHandle SharedMemory::handle(int device) const {
  Named n{{}, static_cast<int32_t>(getpid()), file_, device, bytes_, pages_, serial_};
  std::memcpy(n.magic, kMagic, sizeof kMagic);
  cuda::CUipcMemHandle handle{};
  std::memcpy(handle.reserved, &n, sizeof n);
  return handle;
}
int SharedMemory::process_of(const cuda::CUipcMemHandle& handle) { return named(handle).process; }

int64_t SharedMemory::mapped() const { return pages_ + kPage; }
int SharedMemory::opened() const { return use_->opened; }
void SharedMemory::close() { use_->opened--; }
void SharedMemory::end() { use_->ended = 1; }
bool SharedMemory::has_ended() const { return use_->ended != 0; }

}  // namespace tessera::emulated_gpu
