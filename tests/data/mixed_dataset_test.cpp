#include "data/mixed_dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/text.h"
#include "data/batch_reader.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

// Sample i is the id `base` + i, twice.
class Numbers final : public SampleSource {
 public:
  Numbers(int32_t base, int64_t samples, int64_t context = 2)
      : base_(base), samples_(samples), context_(context) {}
  int64_t context() const override { return context_; }
  int32_t filler() const override { return -1; }
  int64_t samples() const override { return samples_; }
  int64_t sample(int64_t i, const SampleRow& row) const override {
    EXPECT_GE(i, 0);
    EXPECT_LT(i, samples_);
    for (auto* span : {&row.inputs, &row.targets})
      std::ranges::fill(*span, base_ + static_cast<int32_t>(i));
    return context_;
  }

 private:
  int32_t base_;
  int64_t samples_, context_;
};

std::shared_ptr<const SampleSource> numbers(int32_t base, int64_t samples, int64_t context = 2) {
  return std::make_shared<Numbers>(base, samples, context);
}

std::vector<int32_t> read_all(const SampleSource& source, BatchReaderOptions options) {
  BatchReader reader(source, options);
  Batch batch;
  std::vector<int32_t> seen;
  while (reader.next(batch)) {
    for (int64_t row = 0; row < batch.rows; ++row)
      seen.push_back(batch.inputs[static_cast<size_t>(row * source.context())]);
  }
  return seen;
}

TEST(MixedDataset, NoSampleOfASourceIsLeftOutOrComesTwice) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {1, 1}, {0.7, 0.2, 0.1}, {1, 3}, {5, 1e-3, 2, 2}, {1e6, 3e6, 7}}) {
    std::vector<MixPart> parts;
    double sum = 0;
    for (double weight : weights) {
      parts.push_back({numbers(0, 10), weight});
      sum += weight;
    }
    MixedDataset mix(parts, 1, true);
    std::vector<int64_t> next(weights.size());
    const auto loose = static_cast<double>(weights.size());
    for (int64_t k = 0; k < 20'000; ++k) {
      const auto place = mix.at(k);
      ASSERT_EQ(place.number, next[place.source]) << "sample " << k;
      ++next[place.source];
      for (size_t s = 0; s < weights.size(); ++s) {
        ASSERT_NEAR(static_cast<double>(next[s]), static_cast<double>(k + 1) * weights[s] / sum,
                    loose);
      }
    }
  }
}

TEST(MixedDataset, SharesAreExactFarOutToo) {
  MixedDataset mix({{numbers(0, 10), 0.7}, {numbers(0, 10), 0.2}, {numbers(0, 10), 0.1}}, 1, true);
  for (int64_t k : {int64_t{10} << 30, int64_t{10} << 50}) {
    int64_t counts[3] = {};
    std::vector<int64_t> first(3, -1);
    for (int64_t i = 0; i < 1000; ++i) {
      const auto place = mix.at(k + i);
      if (first[place.source] < 0) first[place.source] = place.number;
      EXPECT_EQ(place.number, first[place.source] + counts[place.source]++);
    }
    EXPECT_EQ(counts[0], 700);
    EXPECT_EQ(counts[1], 200);
    EXPECT_EQ(counts[2], 100);
    EXPECT_EQ(first[0], k / 10 * 7);
  }
}

// Epochs of the mix are longer than those of one source, and shorter than those of the other.
TEST(MixedDataset, EachSourceGoesOnToItsNextEpochInAnotherOrder) {
  MixedDataset mix({{numbers(0, 50), 1}, {numbers(1000, 150), 1}}, 7, true);
  EXPECT_EQ(mix.samples(), 200);
  const auto seen =
      read_all(mix, {.rows = 3, .end = 3 * mix.samples(), .shuffle = true, .seed = 99});
  ASSERT_EQ(seen.size(), 600u);
  std::vector<int32_t> small, large;
  for (int32_t id : seen) (id < 1000 ? small : large).push_back(id);
  ASSERT_EQ(small.size(), 300u);
  auto epoch = [](const std::vector<int32_t>& ids, size_t number, size_t size) {
    return std::vector<int32_t>(ids.begin() + static_cast<ptrdiff_t>(number * size),
                                ids.begin() + static_cast<ptrdiff_t>((number + 1) * size));
  };
  std::set<std::vector<int32_t>> orders;
  for (size_t e = 0; e < 6; ++e) {
    const auto ids = epoch(small, e, 50);
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 50u);
    orders.insert(ids);
  }
  EXPECT_EQ(orders.size(), 6u);
  for (size_t e = 0; e < 2; ++e) {
    const auto ids = epoch(large, e, 150);
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 150u);
  }
}

TEST(MixedDataset, ReadersOfAnyNumberOfRanksGoThroughItTogether) {
  MixedDataset mix({{numbers(0, 17), 2}, {numbers(1000, 5), 1}, {numbers(2000, 11), 0.5}}, 7, true);
  const int64_t end = 2 * mix.samples();
  const auto expected = read_all(mix, {.rows = 1, .end = end});
  std::vector<int32_t> seen(expected.size());
  for (int64_t rank = 0; rank < 3; ++rank) {
    BatchReader reader(mix, {.rows = 2, .ranks = 3, .rank = rank, .end = end});
    Batch batch;
    while (reader.next(batch)) {
      for (int64_t row = 0; row < batch.rows; ++row)
        seen[static_cast<size_t>(batch.first_sample + row)] =
            batch.inputs[static_cast<size_t>(row) * 2];
    }
  }
  EXPECT_EQ(seen, expected);
  // A reader that goes on from a position.
  const auto rest = read_all(mix, {.rows = 4, .end = end, .position = 20});
  EXPECT_EQ(rest, std::vector<int32_t>(expected.begin() + 20, expected.end()));
}

TEST(MixedDataset, OrderFollowsTheSeed) {
  auto first = [](uint64_t seed, bool shuffle) {
    MixedDataset mix({{numbers(0, 40), 1}, {numbers(0, 40), 1}}, seed, shuffle);
    return read_all(mix, {.end = 80});
  };
  EXPECT_EQ(first(1, true), first(1, true));
  EXPECT_NE(first(1, true), first(2, true));
  const auto plain = first(1, false);
  EXPECT_EQ(plain, first(2, false));
  // Sources of equal size are not in the same order.
  const auto mixed = first(1, true);
  int same = 0;
  for (size_t i = 0; i < 80; i += 2) same += mixed[i] == mixed[i + 1];
  EXPECT_LT(same, 20);
}

TEST(MixedDataset, WeightsAndContextsThatDoNotFitAreErrors) {
  auto message = [](std::vector<MixPart> parts) {
    return user_error([&] { MixedDataset(std::move(parts), 1, true); });
  };
  expect_contains(message({}), "at least one");
  for (double weight : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    expect_contains(message({{numbers(0, 1), 1}, {numbers(0, 1), weight}}),
                    "the weight of data set 2 of a mix");
  }
  expect_contains(message({{numbers(0, 1), 1}, {numbers(0, 1), 1e-9}}), "too small");
  expect_contains(message({{numbers(0, 1, 4), 1}, {numbers(0, 1, 8), 1}}), "of 4 and of 8 tokens");
}

}  // namespace
}  // namespace tessera
