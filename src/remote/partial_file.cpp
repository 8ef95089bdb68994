#include "remote/partial_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// Of all files that are PATH while they are fetched.
std::string partial_prefix(const fs::path& path) {
  return cat(path.filename().string(), ".partial-");
}

}  // namespace

uint64_t begun_bytes(const fs::path& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(path.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(partial_prefix(path)) &&
        !name.starts_with(cat(path.filename().string(), ".tmp-")))
      continue;
    std::error_code gone;
    if (const uint64_t size = it->file_size(gone); !gone) bytes += size;
  }
  return bytes;
}

PartialFile::PartialFile(fs::path path, const std::string& identity, uint64_t block_bytes)
    : path_(std::move(path)) {
  free_ = path_;
  free_ += cat(".partial-", hex(sha256(identity)).substr(0, 16));
  aside_ = free_;
  aside_ += cat("-", unique_suffix());
  claim_leftover();
  fd_ = ::open(aside_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create");
  const off_t there = ::lseek(fd_, 0, SEEK_END);
  if (there < 0) fail("read");
  kept_ = static_cast<uint64_t>(there) / block_bytes * block_bytes;
  const auto end = static_cast<off_t>(kept_);
  if (::ftruncate(fd_, end) != 0 || ::lseek(fd_, end, SEEK_SET) != end) fail("write");
}

PartialFile::~PartialFile() {
  if (fd_ < 0) return;
  // Under its free name it may be gone on with after a restart of the machine, too.
  if (::fsync(fd_) != 0) {
    discard();
    return;
  }
  close();
  std::error_code ignored;
  fs::rename(aside_, free_, ignored);
}

// Whoever renames it first has it.
void PartialFile::claim_leftover() {
  const std::string all = partial_prefix(path_);
  const std::string same = free_.filename().string();
  bool claimed = false;
  std::error_code error, ignored;
  for (fs::directory_iterator it(path_.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(all)) continue;
    const std::string_view maker = std::string_view(name).substr(
        std::min(name.size(), name.find('-', all.size()) + size_t{1}));
    const bool is_free = name.find('-', all.size()) == std::string::npos;
    if (!is_free && !maker_has_ended(maker)) continue;
    if (!claimed && name.starts_with(same)) {
      std::error_code lost;
      fs::rename(it->path(), aside_, lost);
      claimed = !lost;
    } else {
      fs::remove(it->path(), ignored);
    }
  }
}

void PartialFile::read(uint64_t offset, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t n =
        ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw UserError(cat("cannot read '", aside_.string(), "': ", std::strerror(errno)));
    done += static_cast<size_t>(n);
  }
}

void PartialFile::write(std::span<const std::byte> bytes) {
  if (write_fully(fd_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}) < bytes.size())
    fail("write");
}

void PartialFile::commit() {
  if (::fsync(fd_) != 0 || ::rename(aside_.c_str(), path_.c_str()) != 0) fail("write");
  close();
  sync_directory(path_.parent_path());
}

void PartialFile::discard() {
  close();
  std::error_code ignored;
  fs::remove(aside_, ignored);
}

void PartialFile::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void PartialFile::fail(const char* what) {
  const int reason = errno;
  discard();
  throw UserError(cat("cannot ", what, " '", path_.string(), "': ", std::strerror(reason),
                      "; make room, or take another directory for the cache"));
}

}  // namespace tessera
