#include "tokenizer/pair_merges.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr size_t kShort = 32;  // up to here scanning for the lowest rank beats a heap

}  // namespace

size_t PairMerges::merge(std::span<int32_t> symbols) const {
  return symbols.size() <= kShort ? merge_short(symbols) : merge_long(symbols);
}

size_t PairMerges::merge_short(std::span<int32_t> symbols) const {
  Step steps[kShort];  // steps[i]: what symbols i and i + 1 merge to
  size_t count = symbols.size();
  auto look_up = [&](size_t i) {
    const Step* step = steps_.find(symbols[i], symbols[i + 1]);
    steps[i] = step ? *step : Step{kNoRank, 0};
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (steps[i].rank < steps[best].rank) best = i;
    }
    if (steps[best].rank == kNoRank) break;
    symbols[best] = steps[best].result;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      steps[i] = steps[i + 1];
    }
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

size_t PairMerges::merge_long(std::span<int32_t> symbols) const {
  if (symbols.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw UserError(cat("cannot tokenize a single word of ",
                        format_bytes(static_cast<int64_t>(symbols.size())),
                        " (at most 2 GiB): is the input text?"));
  }
  struct Link {
    int32_t previous, next;
  };
  struct Candidate {
    int32_t rank, position, left, right, result;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, position) > std::pair(other.rank, other.position);
    }
  };
  constexpr int32_t kGone = -1;  // merged into its left neighbour
  auto size = static_cast<int32_t>(symbols.size());
  std::vector<Link> links(symbols.size() + 1);
  auto symbol_at = [&](int32_t i) -> int32_t& { return symbols[static_cast<size_t>(i)]; };
  auto link_at = [&](int32_t i) -> Link& { return links[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i <= size; ++i) link_at(i) = {i - 1, i + 1};

  std::vector<Candidate> found;
  auto consider = [&](int32_t i, const auto& add) {
    int32_t next = link_at(i).next;
    if (next == size) return;
    int32_t left = symbol_at(i), right = symbol_at(next);
    if (const Step* step = steps_.find(left, right)) {
      add(Candidate{step->rank, i, left, right, step->result});
    }
  };
  for (int32_t i = 0; i < size; ++i) consider(i, [&](Candidate c) { found.push_back(c); });
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates(
      std::greater<>(), std::move(found));
  auto push = [&](Candidate c) { candidates.push(c); };
  while (!candidates.empty()) {
    Candidate best = candidates.top();
    candidates.pop();
    if (symbol_at(best.position) != best.left) continue;  // one of the two has merged since
    Link& left = link_at(best.position);
    int32_t right = left.next;
    if (right == size || symbol_at(right) != best.right) continue;
    symbol_at(best.position) = best.result;
    symbol_at(right) = kGone;
    left.next = link_at(right).next;
    link_at(left.next).previous = best.position;
    if (left.previous >= 0) consider(left.previous, push);
    consider(best.position, push);
  }
  return static_cast<size_t>(std::remove(symbols.begin(), symbols.end(), kGone) - symbols.begin());
}

}  // namespace tessera
