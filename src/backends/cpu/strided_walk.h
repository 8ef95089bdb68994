#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/shape.h"

namespace tessera::cpu {

// Dims that a walk can have.
constexpr size_t kMaxDims = 8;

// A walk over an index space in row-major order that keeps track of the element offset in N tensors
// at once. Made when a launch is prepared; walking allocates nothing.
template <size_t N>
class StridedWalk {
 public:
  using Offsets = std::array<int64_t, N>;

  // Appends an inner dim along which tensor k advances by steps[k] elements. Dims of one element
  // are dropped, and a dim that continues the one before it in all tensors is merged into it, so
  // that rows are as long as they can be. At most kMaxDims dims.
  void add_dim(int64_t size, Offsets steps) {
    total_ *= size;
    if (size == 1) return;
    if (dims_ > 0) {
      Dim& last = dim_[dims_ - 1];
      bool merges = true;
      for (size_t k = 0; k < N; ++k) merges = merges && last.steps[k] == steps[k] * size;
      if (merges) {
        last = {last.size * size, steps};
        return;
      }
    }
    dim_[dims_++] = {size, steps};
  }

  int64_t total() const { return total_; }
  // Step of tensor k within a row.
  int64_t row_step(size_t k) const { return dims_ == 0 ? 0 : dim_[dims_ - 1].steps[k]; }

  // body(offsets, count) for each piece of a row, elements [begin, end) of the walk altogether.
  template <class Body>
  void for_rows(int64_t begin, int64_t end, const Body& body) const {
    if (begin >= end) return;
    Offsets offsets{};
    if (dims_ == 0) return body(offsets, int64_t{1});
    std::array<int64_t, kMaxDims> index{};
    int64_t rest = begin;
    for (size_t d = dims_; d-- > 0;) {
      index[d] = rest % dim_[d].size;
      rest /= dim_[d].size;
      advance(offsets, dim_[d], index[d]);
    }
    size_t inner = dims_ - 1;
    for (;;) {
      int64_t count = std::min(dim_[inner].size - index[inner], end - begin);
      body(offsets, count);
      begin += count;
      if (begin == end) return;
      advance(offsets, dim_[inner], count);
      index[inner] += count;
      for (size_t d = inner; index[d] == dim_[d].size;
           --d) {  // never carries out of dim 0: begin < end
        advance(offsets, dim_[d], -dim_[d].size);
        index[d] = 0;
        advance(offsets, dim_[d - 1], 1);
        ++index[d - 1];
      }
    }
  }

 private:
  struct Dim {
    int64_t size;
    Offsets steps;
  };
  static void advance(Offsets& offsets, const Dim& dim, int64_t count) {
    for (size_t k = 0; k < N; ++k) offsets[k] += dim.steps[k] * count;
  }

  std::array<Dim, kMaxDims> dim_{};
  size_t dims_ = 0;
  int64_t total_ = 1;
};

}  // namespace tessera::cpu
