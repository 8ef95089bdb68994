#include "remote/block_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "remote/range_lock.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "TSRBLOCK";
constexpr uint64_t kVersion = 1;

void append_number(std::string& text, uint64_t number) {
  char bytes[8];
  std::memcpy(bytes, &number, 8);
  text.append(bytes, 8);
}

uint64_t trailer_hash(std::span<const std::byte> content, std::string_view description) {
  Hasher hasher;
  hasher.add(content.data(), content.size());
  hasher.add(description.data(), description.size());
  return hasher.digest();
}

std::string describe_block(uint64_t content_bytes, uint64_t index, std::string_view identity) {
  std::string text(kMagic);
  append_number(text, kVersion);
  append_number(text, index);
  append_number(text, content_bytes);
  append_number(text, hash_text(identity));
  return text;
}

// What stands between `file.identity` and the same with other blocks.
std::string block_identity(const CachedFile& file) {
  return cat(file.identity, " blocks ", file.block_bytes);
}

struct StoredBlock {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

// Every block, and the temporary files whose makers have ended removed.
std::vector<StoredBlock> stored_blocks(const fs::path& directory) {
  std::vector<StoredBlock> blocks;
  std::error_code error, ignored;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    check_interruption();
    std::string name = it->path().filename().string();
    size_t maker = name.find(".tmp-");
    if (maker != std::string::npos) {
      if (maker_has_ended(std::string_view(name).substr(maker + 5)))
        fs::remove(it->path(), ignored);
      continue;
    }
    if (!std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) continue;
    struct stat info {};
    // Another process may have removed it just now.
    if (::lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    auto used = it->last_write_time(ignored);
    blocks.push_back({it->path(), static_cast<uint64_t>(info.st_size), used});
  }
  return blocks;
}

}  // namespace

std::string block_trailer(std::span<const std::byte> content, uint64_t index,
                          std::string_view identity) {
  std::string trailer = describe_block(content.size(), index, identity);
  append_number(trailer, trailer_hash(content, trailer));
  return trailer;
}

std::string block_flaw(std::span<const std::byte> file, uint64_t index, std::string_view identity) {
  if (file.size() < kBlockTrailerBytes) return cat("it has ", file.size(), " bytes only");
  auto content = file.first(file.size() - kBlockTrailerBytes);
  std::string_view trailer(reinterpret_cast<const char*>(file.data()) + content.size(),
                           kBlockTrailerBytes);
  if (!trailer.starts_with(kMagic)) return "it has no description at its end";
  if (!trailer.starts_with(describe_block(content.size(), index, identity)))
    return "it is not the block that its name says";
  return trailer == block_trailer(content, index, identity) ? "" : "its hash is wrong";
}

BlockCache::BlockCache(fs::path directory, uint64_t max_bytes, double lock_deadline)
    : directory_(std::move(directory)), max_bytes_(max_bytes), lock_deadline_(lock_deadline) {}

std::optional<std::vector<std::byte>> BlockCache::load(const fs::path& path, const CachedFile& file,
                                                       uint64_t index, size_t bytes, bool warn) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  ::futimens(fd, nullptr);  // when it was used last; fails where it belongs to somebody else
  std::vector<std::byte> content(bytes + kBlockTrailerBytes);
  size_t done = 0;
  struct stat info {};
  bool same_size = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                   static_cast<uint64_t>(info.st_size) == content.size();
  while (same_size && done < content.size()) {
    ssize_t n = ::read(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  ::close(fd);
  std::string flaw = done == content.size()
                         ? block_flaw(content, index, block_identity(file))
                         : cat("it has ", info.st_size, " bytes instead of ", content.size());
  if (!flaw.empty() && warn) {
    TESSERA_WARN(cat("block '", path.string(), "' of '", file.name, "' is damaged: ", flaw,
                     "; it is fetched again"));
  }
  if (!flaw.empty()) return {};
  content.resize(bytes);
  return content;
}

std::vector<std::byte> BlockCache::get(const CachedFile& file, uint64_t index, size_t bytes,
                                       const Fetch& fetch, const std::atomic<bool>* cancel) {
  fs::path folder = directory_ / "blocks" / hex(sha256(block_identity(file))).substr(0, 32);
  fs::path path = folder / format("%08llu", static_cast<unsigned long long>(index));
  if (auto content = load(path, file, index, bytes, false)) return std::move(*content);
  std::error_code ignored;
  fs::create_directories(folder, ignored);  // store() says what is wrong
  RangeLock lock(folder / "lock", index, lock_deadline_, cancel);
  if (lock.waited_in_vain()) {
    TESSERA_WARN(cat("another process has been fetching block ", index, " of '", file.name,
                     "' for ", format_duration(lock_deadline_), "; it is fetched here as well"));
  }
  // Somebody else may have fetched it, or mended it, meanwhile.
  if (auto content = load(path, file, index, bytes, true)) return std::move(*content);
  std::vector<std::byte> content(bytes);
  fetch(content);
  store(path, file, index, content);
  return content;
}

void BlockCache::store(const fs::path& path, const CachedFile& file, uint64_t index,
                       std::span<const std::byte> content) {
  std::string trailer = block_trailer(content, index, block_identity(file));
  try {
    make_directories(path.parent_path());
    AtomicFile stored(path);
    stored.write(content.data(), content.size());
    stored.write(trailer);
    stored.commit();
  } catch (const UserError& error) {
    if (!warned_.exchange(true)) {
      TESSERA_WARN(cat("what is fetched is not kept: ", error.what(),
                       "; make room, or take another directory for the cache"));
    }
    return;
  }
  {
    std::lock_guard guard(mutex_);
    if (bytes_) *bytes_ += content.size() + trailer.size();
    if (bytes_ && *bytes_ <= max_bytes_) return;
  }
  trim_to_bound();
}

void BlockCache::trim_to_bound() {
  fs::path blocks_directory = directory_ / "blocks";
  RangeLock lock(blocks_directory / "trim.lock", 0, 0);
  if (lock.waited_in_vain()) return;  // another process does it
  std::vector<StoredBlock> blocks = stored_blocks(blocks_directory);
  uint64_t total = 0;
  for (const StoredBlock& block : blocks) total += block.bytes;
  if (total > max_bytes_) {
    std::ranges::sort(blocks, {}, &StoredBlock::used);
    // Somewhat more than must be, so that not every block that comes makes one go.
    uint64_t goal = max_bytes_ - max_bytes_ / 16;
    std::error_code error;
    for (const StoredBlock& block : blocks) {
      if (total <= goal) break;
      fs::remove(block.path, error);
      if (!error) total -= block.bytes;
    }
  }
  std::lock_guard guard(mutex_);
  // What others add is not seen: look again when so much more has come from here that it matters.
  bytes_ = std::max(total, max_bytes_ - max_bytes_ / 16);
}

}  // namespace tessera
