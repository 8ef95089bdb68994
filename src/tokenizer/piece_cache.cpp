#include "tokenizer/piece_cache.h"

#include <atomic>

namespace tessera {

uint64_t PieceCache::new_owner() {
  static std::atomic<uint64_t> owners{0};
  return ++owners;
}

PieceCache& PieceCache::of_thread(uint64_t owner) {
  thread_local PieceCache cache;
  if (cache.owner_ != owner) {
    cache.slots_.assign(kSlots, Slot{});
    cache.owner_ = owner;
  }
  return cache;
}

}  // namespace tessera
