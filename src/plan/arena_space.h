#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace tessera {

// The bytes of an arena over the time of a program: blocks that live from node `first` to node
// `last` and lie at [begin, begin + bytes). Blocks of different times may share bytes.
//
// A segment tree over time: each of its ranges knows the bytes that are taken anywhere in it, and
// those that are taken in all of it by one block, as intervals that grow together where they touch.
// So placing a block takes about log(nodes) steps, however many live beside it.
class ArenaSpace {
 public:
  explicit ArenaSpace(int32_t nodes);

  // Lowest offset, at or behind `from`, at which `bytes` are free from node `first` to node `last`,
  // both included. Past `most` it looks no further: what it returns then may be taken.
  int64_t lowest_free(int32_t first, int32_t last, int64_t bytes, int64_t from = 0,
                      int64_t most = std::numeric_limits<int64_t>::max());
  void take(int32_t first, int32_t last, int64_t begin, int64_t bytes);

  // Looks into a range of the tree so far: what the work is proportional to.
  int64_t steps() const { return steps_; }

 private:
  // Disjoint intervals, begin -> end, none touching another.
  using Intervals = std::map<int64_t, int64_t>;
  struct Range {
    Intervals anywhere, throughout;
  };
  static void add(Intervals& intervals, int64_t begin, int64_t end);
  template <class Visitor>
  void visit(size_t index, int32_t begin, int32_t end, int32_t first, int32_t last,
             const Visitor& visitor);

  int32_t size_;               // leaves
  std::vector<Range> ranges_;  // children of i: 2 i and 2 i + 1
  int64_t steps_ = 0;
};

}  // namespace tessera
