#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "tokenizer/pair_map.h"

namespace tessera {

// The rules of byte pair encoding: which neighbours become one, and in which order.
class PairMerges {
 public:
  // `expected` rules.
  explicit PairMerges(size_t expected = 0) : steps_(expected) {}

  // Symbols are not negative. False when the pair has a rule already.
  bool add(int32_t left, int32_t right, int32_t rank, int32_t result) {
    return steps_.insert(left, right, {rank, result}).second;
  }
  size_t size() const { return steps_.size(); }

  // Merges neighbours, the pair of lowest rank first and the leftmost among equals, until no pair
  // has a rule; says how many symbols there are then, at the beginning of the span. Time O(n log
  // n), however long. UserError for 2^31 of them or more.
  size_t merge(std::span<int32_t> symbols) const;

 private:
  struct Step {
    int32_t rank, result;
  };
  size_t merge_short(std::span<int32_t> symbols) const;
  size_t merge_long(std::span<int32_t> symbols) const;

  PairMap<Step> steps_;
};

}  // namespace tessera
