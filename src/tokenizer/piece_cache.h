#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace tessera {

// The ids of pieces of text seen before, one table a thread: each piece has one slot, and a newer
// piece takes it. A slot is a cache line; what does not fit in one is encoded anew.
class PieceCache {
 public:
  // Names a tokenizer: no two share a number.
  static uint64_t new_owner();

  // The calling thread's cache, emptied when it served another tokenizer last.
  static PieceCache& of_thread(uint64_t owner);

  // Appends the ids of `piece`: those it had before, or what encode(piece, ids) appends.
  template <class Encode>
  void append(std::string_view piece, std::vector<int32_t>& ids, const Encode& encode) {
    if (piece.size() > kMaxBytes) return encode(piece, ids);
    Slot& slot = slots_[hash_text(piece) % kSlots];
    if (slot.size == piece.size() && std::memcmp(slot.bytes, piece.data(), piece.size()) == 0) {
      ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
      return;
    }
    size_t before = ids.size();
    encode(piece, ids);
    size_t count = ids.size() - before;
    if (count > kMaxIds) return;
    std::ranges::copy(piece, slot.bytes);
    std::copy(ids.end() - static_cast<ptrdiff_t>(count), ids.end(), slot.ids);
    slot.size = static_cast<uint8_t>(piece.size());
    slot.count = static_cast<uint8_t>(count);
  }

 private:
  static constexpr size_t kMaxBytes = 24, kMaxIds = 8, kSlots = size_t{1} << 15;  // 2 MiB

  struct alignas(64) Slot {
    char bytes[kMaxBytes];
    int32_t ids[kMaxIds];
    uint8_t size = 0;  // 0: empty
    uint8_t count = 0;
  };

  uint64_t owner_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace tessera
