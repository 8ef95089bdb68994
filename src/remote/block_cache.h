#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// A block of a remote file, as a file of the cache:
//
//   content, then 48 bytes: "TSRBLOCK", version, number of the block, size of the content,
//   hash of the remote file's identity, XXH3 of all before it; integers of 8 bytes, little-endian
//
// The description stands at the end: a block that is cut short has none.
constexpr size_t kBlockTrailerBytes = 48;
std::string block_trailer(std::span<const std::byte> content, uint64_t index,
                          std::string_view identity);
// What is wrong with the bytes of such a file; empty if nothing is.
std::string block_flaw(std::span<const std::byte> file, uint64_t index, std::string_view identity);

// Which remote file a block is of.
struct CachedFile {
  std::string name;      // for messages
  std::string identity;  // equal only for equal content
  uint64_t block_bytes = 0;
};

// Blocks of remote files in DIRECTORY/blocks/HASH OF FILE/NUMBER, shared by all processes that have
// the directory. One fetches a block, others that want it meanwhile wait for it; where the one
// dies, another takes over. A damaged block is fetched again with a warning. Where the cache cannot
// be written (no space, no right), a warning says so once and every block is fetched. Thread-safe.
class BlockCache {
 public:
  using Fetch = std::function<void(std::span<std::byte> out)>;

  // `max_bytes`: from there on blocks that were not used for longest are removed, by whoever adds
  // one; up to 1/16 more may lie there, and what others add who know of another bound.
  BlockCache(std::filesystem::path directory, uint64_t max_bytes, double lock_deadline);

  // Block `index`, of `bytes` bytes: from the cache, else by `fetch`. Errors are those of `fetch`;
  // Interrupted, also when `cancel` (may be null) is set.
  std::vector<std::byte> get(const CachedFile& file, uint64_t index, size_t bytes,
                             const Fetch& fetch, const std::atomic<bool>* cancel = nullptr);

  // Removes blocks until they fit, and what processes have left behind that ended while they wrote.
  void trim_to_bound();

  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::optional<std::vector<std::byte>> load(const std::filesystem::path& path,
                                             const CachedFile& file, uint64_t index, size_t bytes,
                                             bool warn);
  void store(const std::filesystem::path& path, const CachedFile& file, uint64_t index,
             std::span<const std::byte> content);

  std::filesystem::path directory_;
  uint64_t max_bytes_;
  double lock_deadline_;
  std::mutex mutex_;
  std::atomic<bool> warned_{false};
  std::optional<uint64_t> bytes_;  // what lies there, as far as this process knows
};

}  // namespace tessera
