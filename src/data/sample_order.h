#pragma once
#include <cstdint>

namespace tessera {

// Which window of the data set is sample number k of the job: a function of (seed, epoch, k) alone,
// the same for any batch size, number of ranks and point of resumption. Sample k belongs to epoch
// k / samples; every epoch holds every window exactly once, in an order of its own.
//
// The order is a keyed permutation, computed per sample without a table: a Feistel network on
// Z_a x Z_b, a = ceil(sqrt(samples)), b = ceil(samples / a), whose rounds add philox values modulo
// a and b in turn, walked along its cycle until it falls below `samples` (Black and Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002). Without shuffling, windows come in file
// order.
class SampleOrder {
 public:
  struct Place {
    int64_t epoch, window;
  };

  SampleOrder(uint64_t seed, int64_t samples, bool shuffle);

  int64_t samples() const { return samples_; }  // of one epoch
  Place at(int64_t k) const;                    // k >= 0

 private:
  uint64_t seed_;
  int64_t samples_;
  bool shuffle_;
  uint64_t rows_, columns_;  // a and b
};

}  // namespace tessera
