#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Byte strings by their beginnings: a double-array trie (Aoe, "An Efficient Digital Search
// Algorithm by Using a Double-Array Structure", 1989) whose node n has its child for byte c at
// base(n) ^ c, if that one's parent is n.
class PieceTrie {
 public:
  static constexpr size_t kMaxNodes = size_t{1} << 23;

  struct Entry {
    std::string text;
    int32_t value;  // not negative
    float score = 0;
  };
  // Distinct strings, none empty. UserError saying that `name` is too large when they need more
  // than kMaxNodes nodes.
  PieceTrie(std::vector<Entry> entries, const std::string& name);

  static constexpr uint32_t kRoot = 0;
  // Moves on by one byte; false when no string continues so.
  bool step(uint32_t& node, unsigned char byte) const {
    uint32_t next = nodes_[node].base ^ byte;
    if (nodes_[next].parent != node) return false;
    node = next;
    return true;
  }
  // Of the string that ends at this node; -1: none does.
  int32_t value(uint32_t node) const { return nodes_[node].value; }
  float score(uint32_t node) const { return nodes_[node].score; }

  struct Match {
    size_t size = 0;  // 0: no string
    int32_t value = -1;
  };
  // The longest string that `text` begins with.
  Match longest(std::string_view text) const;

 private:
  friend class PieceTrieBuilder;
  static constexpr uint32_t kFree = ~uint32_t{0}, kNobody = kFree - 1;  // in place of a parent
  struct alignas(16) Node {
    uint32_t base = 0, parent = kFree;
    int32_t value = -1;
    float score = 0;
  };
  std::vector<Node> nodes_;  // a multiple of 256: base ^ byte lies inside, whatever the byte
};

}  // namespace tessera
