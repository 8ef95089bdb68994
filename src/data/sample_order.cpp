#include "data/sample_order.h"

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr uint64_t kStream = stream_of("data.order");
constexpr uint64_t kRounds = 8;

uint64_t ceil_sqrt(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root < n) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= n) --root;
  return root;
}

}  // namespace

SampleOrder::SampleOrder(uint64_t seed, int64_t samples, bool shuffle)
    : seed_(seed), samples_(samples), shuffle_(shuffle) {
  // Below 2^60 no product here leaves 64 bits.
  TESSERA_CHECK(samples > 0 && samples < int64_t{1} << 60, cat(samples, " samples"));
  rows_ = ceil_sqrt(static_cast<uint64_t>(samples));
  columns_ = (static_cast<uint64_t>(samples) + rows_ - 1) / rows_;
}

SampleOrder::Place SampleOrder::at(int64_t k) const {
  TESSERA_CHECK(k >= 0);
  const int64_t epoch = k / samples_, place = k % samples_;
  if (!shuffle_) return {epoch, place};
  auto words = philox(seed_, kStream, static_cast<uint64_t>(epoch));
  const uint64_t key = (uint64_t{words[1]} << 32) | words[0];
  auto x = static_cast<uint64_t>(place);
  do {
    uint64_t row = x / columns_, column = x % columns_;
    for (uint64_t round = 0; round < kRounds; round += 2) {
      row = (row + random_below(key, round, column, rows_)) % rows_;
      column = (column + random_below(key, round + 1, row, columns_)) % columns_;
    }
    x = row * columns_ + column;
  } while (x >= static_cast<uint64_t>(samples_));
  return {epoch, static_cast<int64_t>(x)};
}

}  // namespace tessera
