#include "remote/remote_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {

RemoteFile::RemoteFile(RemoteLocation location, const RemoteOptions& options,
                       std::shared_ptr<BlockCache> cache)
    : reader_(std::move(location), options.http),
      file_{reader_.location().name, reader_.location().identity, options.block_bytes},
      cache_(std::move(cache)),
      capacity_(static_cast<size_t>(std::max(options.blocks_in_memory, 1)) + options.read_ahead),
      reads_ahead_(options.read_ahead) {
  TESSERA_CHECK(file_.block_bytes > 0, "blocks have a size");
}

RemoteFile::~RemoteFile() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wanted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RemoteFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size() || out.size() > size() - offset) {
    throw UserError(cat("cannot read '", name(), "': it has ", size(), " bytes, and ", out.size(),
                        " at ", offset,
                        " are asked for; it is damaged, or not what its name says"));
  }
  while (!out.empty()) {
    check_interruption();
    uint64_t index = offset / file_.block_bytes, within = offset % file_.block_bytes;
    note_use(index);
    std::shared_ptr<Block> block = this->block(index, nullptr);
    size_t count = std::min<size_t>(out.size(), block->bytes.size() - within);
    std::memcpy(out.data(), block->bytes.data() + within, count);
    out = out.subspan(count);
    offset += count;
  }
}

std::shared_ptr<RemoteFile::Block> RemoteFile::block(uint64_t index,
                                                     const std::atomic<bool>* cancel) const {
  std::shared_ptr<Block> block;
  {
    std::lock_guard lock(mutex_);
    auto found = std::ranges::find(blocks_, index, [](const auto& entry) { return entry.first; });
    if (found != blocks_.end()) {
      blocks_.splice(blocks_.begin(), blocks_, found);
    } else {
      blocks_.emplace_front(index, std::make_shared<Block>());
      if (blocks_.size() > capacity_) blocks_.pop_back();
    }
    block = blocks_.front().second;
  }
  std::lock_guard lock(block->mutex);
  if (block->bytes.empty()) {
    uint64_t begin = index * file_.block_bytes;
    auto bytes = static_cast<size_t>(std::min(file_.block_bytes, size() - begin));
    auto fetch = [&](std::span<std::byte> out) { reader_.read(begin, out, cancel); };
    if (cache_) {
      block->bytes = cache_->get(file_, index, bytes, fetch, cancel);
    } else {
      std::vector<std::byte> fetched(bytes);
      fetch(fetched);
      block->bytes = std::move(fetched);
    }
  }
  return block;
}

void RemoteFile::note_use(uint64_t index) const {
  if (!reads_ahead_) return;
  std::lock_guard lock(mutex_);
  bool in_a_row = last_used_ && *last_used_ + 1 == index;
  last_used_ = index;
  bool is_last = (index + 1) * file_.block_bytes >= size();
  if (!in_a_row || is_last || ends_) return;
  wanted_ahead_ = index + 1;
  if (!thread_.joinable()) thread_ = std::thread([this] { read_ahead(); });
  wanted_.notify_one();
}

void RemoteFile::read_ahead() const {
  for (;;) {
    uint64_t index = 0;
    {
      std::unique_lock lock(mutex_);
      wanted_.wait(lock, [this] { return ends_ || wanted_ahead_; });
      if (ends_) return;
      index = *wanted_ahead_;
      wanted_ahead_.reset();
    }
    try {
      block(index, &ends_);
    } catch (const std::exception&) {
      // Whoever needs the block meets it again, and says so.
    }
  }
}

}  // namespace tessera
