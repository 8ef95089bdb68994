#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera {

// Some of a file: its records j, counted from 0, with begin <= j % of < end.
struct LanePart {
  size_t file = 0;
  int64_t begin = 0, end = 1, of = 1;

  bool holds(int64_t record) const { return record % of >= begin && record % of < end; }
};

// Which of `files` files a lane reads, in which order. Every epoch deals an order of its own
// (sample_order.h): whole files in turn as long as there is one for each lane; what is left is cut
// by records into equal shares, one a lane, of one file or two neighbouring ones. So each record
// belongs to one lane, and all lanes have about the same.
class LaneFiles {
 public:
  // files, lanes > 0.
  LaneFiles(size_t files, int64_t lanes, uint64_t seed, bool shuffle)
      : files_(static_cast<int64_t>(files)), lanes_(lanes), seed_(seed), shuffle_(shuffle) {}

  int64_t parts(int64_t lane) const;  // of an epoch
  LanePart part(int64_t lane, int64_t epoch, int64_t i) const;

 private:
  int64_t rounds() const { return files_ / lanes_; }
  int64_t shared() const { return files_ % lanes_; }  // files that are cut

  int64_t files_, lanes_;
  uint64_t seed_;
  bool shuffle_;
};

}  // namespace tessera
