#include "plan/arena_space.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/shape.h"

namespace tessera {

ArenaSpace::ArenaSpace(int32_t nodes)
    : size_(static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(std::max(nodes, 1))))),
      ranges_(2 * static_cast<size_t>(size_)) {}

// Calls visitor(range, whole) for the ranges on the way to those that make up [first, last], and
// for these, which are whole.
template <class Visitor>
void ArenaSpace::visit(size_t index, int32_t begin, int32_t end, int32_t first, int32_t last,
                       const Visitor& visitor) {
  if (last < begin || end <= first) return;
  bool whole = first <= begin && end <= last + 1;
  visitor(ranges_[index], whole);
  if (whole) return;
  int32_t middle = begin + (end - begin) / 2;
  visit(2 * index, begin, middle, first, last, visitor);
  visit(2 * index + 1, middle, end, first, last, visitor);
}

int64_t ArenaSpace::lowest_free(int32_t first, int32_t last, int64_t bytes, int64_t from,
                                int64_t most) {
  // What lives beside the block: anything in the ranges that make up its time, and what lives
  // throughout a range that holds one of them.
  std::vector<const Intervals*> taken;
  visit(1, 0, size_, first, last, [&](const Range& range, bool whole) {
    const Intervals& intervals = whole ? range.anywhere : range.throughout;
    if (!intervals.empty()) taken.push_back(&intervals);
  });
  int64_t offset = from;
  // Free once every set in turn has nothing in the way.
  for (size_t free = 0, k = 0; free < taken.size() && offset <= most; k = (k + 1) % taken.size()) {
    ++steps_;
    auto behind = taken[k]->lower_bound(checked_add(offset, bytes));
    bool blocked = behind != taken[k]->begin() && std::prev(behind)->second > offset;
    if (blocked && bytes > 0) offset = std::prev(behind)->second;
    free = blocked && bytes > 0 ? 0 : free + 1;
  }
  return offset;
}

void ArenaSpace::take(int32_t first, int32_t last, int64_t begin, int64_t bytes) {
  if (bytes == 0) return;
  int64_t end = checked_add(begin, bytes);
  visit(1, 0, size_, first, last, [&](Range& range, bool whole) {
    ++steps_;
    add(range.anywhere, begin, end);
    if (whole) add(range.throughout, begin, end);
  });
}

void ArenaSpace::add(Intervals& intervals, int64_t begin, int64_t end) {
  auto at = intervals.upper_bound(begin);
  if (at != intervals.begin() && std::prev(at)->second >= begin) {
    --at;
    begin = at->first;
  }
  while (at != intervals.end() && at->first <= end) {
    end = std::max(end, at->second);
    at = intervals.erase(at);
  }
  intervals.emplace_hint(at, begin, end);
}

}  // namespace tessera
