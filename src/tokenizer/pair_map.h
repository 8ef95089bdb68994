#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

// A hash map from pairs of token ids (none negative) to small values: open addressing, at most half
// full, nothing is ever erased.
template <class V>
class PairMap {
 public:
  explicit PairMap(size_t expected = 0) {
    size_t slots = 16;
    while (slots < expected * 2) slots *= 2;
    slots_.resize(slots);
  }

  size_t size() const { return size_; }

  // nullptr when absent.
  const V* find(int32_t left, int32_t right) const {
    uint64_t key = key_of(left, right);
    for (size_t i = start(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

  // The value of the pair, inserted first if absent; and whether it was inserted. The reference
  // holds until the next insertion.
  std::pair<V&, bool> insert(int32_t left, int32_t right, V value) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    uint64_t key = key_of(left, right);
    size_t i = start(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    bool inserted = slots_[i].key == kEmpty;
    if (inserted) {
      slots_[i] = {key, value};
      ++size_;
    }
    return {slots_[i].value, inserted};
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    V value{};
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }
  // Fibonacci hashing: the high bits of the product are well mixed.
  size_t start(uint64_t key) const {
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 32) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      size_t i = start(slot.key);
      while (slots_[i].key != kEmpty) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace tessera
