#pragma once
#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "remote/block_cache.h"
#include "remote/options.h"
#include "remote/range_reader.h"

namespace tessera {

// A file on a server, read block by block through the cache, if there is one. In memory are the
// blocks that were read last, RemoteOptions::blocks_in_memory and one that is read ahead, and those
// that threads are reading. After two blocks in a row the next one is fetched ahead, on a thread of
// this object's; its failures are those of the read that needs the block.
class RemoteFile : public ByteSource {
 public:
  RemoteFile(RemoteLocation location, const RemoteOptions& options,
             std::shared_ptr<BlockCache> cache);
  ~RemoteFile() override;  // ends what is being read ahead
  RemoteFile(const RemoteFile&) = delete;
  RemoteFile& operator=(const RemoteFile&) = delete;

  std::string name() const override { return reader_.location().name; }
  uint64_t size() const override { return reader_.location().size; }
  // Errors: RangeReader::read().
  void read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  struct Block {
    std::mutex mutex;  // held by the thread that gets it
    std::vector<std::byte> bytes;
  };

  std::shared_ptr<Block> block(uint64_t index, const std::atomic<bool>* cancel) const;
  void note_use(uint64_t index) const;
  void read_ahead() const;

  RangeReader reader_;
  CachedFile file_;
  std::shared_ptr<BlockCache> cache_;
  size_t capacity_;
  bool reads_ahead_;

  mutable std::mutex mutex_;
  mutable std::list<std::pair<uint64_t, std::shared_ptr<Block>>> blocks_;  // used last first
  mutable std::optional<uint64_t> last_used_, wanted_ahead_;
  mutable std::condition_variable wanted_;
  mutable std::thread thread_;
  std::atomic<bool> ends_{false};
};

}  // namespace tessera
