#include "observe/distribution.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

std::vector<float> some_numbers() {
  std::vector<float> all{0, -0.0f, 1e-30f, -1e-30f, 3e38f, -3e38f, 1, -1};
  for (int i = 0; i < 500; ++i)
    all.push_back(static_cast<float>((i % 2 ? -1 : 1) * std::exp(0.1 * i - 30)));
  return all;
}

TEST(Distribution, EveryNumberIsInItsBucket) {
  const std::vector<float> numbers = some_numbers();
  Distribution all;
  all.add(numbers);
  const auto buckets = all.buckets();
  int64_t count = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    count += buckets[i].count;
    if (i == 0) {
      EXPECT_EQ(buckets[i].count, 0) << "it is a begin";
      continue;
    }
    EXPECT_LT(buckets[i - 1].limit, buckets[i].limit);
    int64_t inside = 0;
    for (const float x : numbers) {
      const double low = buckets[i - 1].limit, high = buckets[i].limit;
      inside += x > 0 ? x >= low && x < high : x > low && x <= high;
    }
    EXPECT_EQ(buckets[i].count, inside) << buckets[i].limit;
  }
  EXPECT_EQ(count, std::ssize(numbers));
  EXPECT_EQ(all.count(), count);
}

TEST(Distribution, PartsAddUpToTheWhole) {
  const std::vector<float> numbers = some_numbers();
  Distribution whole, first, second;
  whole.add(numbers, 0.5);
  first.add(std::span(numbers).subspan(0, 100), 0.5);
  second.add(std::span(numbers).subspan(100), 0.5);
  first.add(Distribution::from_text(second.to_text()));
  first.add(Distribution::from_text(Distribution().to_text()));
  EXPECT_EQ(first.count(), whole.count());
  EXPECT_EQ(first.least(), whole.least());
  EXPECT_EQ(first.most(), whole.most());
  ASSERT_EQ(first.buckets().size(), whole.buckets().size());
  for (size_t i = 0; i < whole.buckets().size(); ++i)
    EXPECT_EQ(first.buckets()[i].count, whole.buckets()[i].count);
}

TEST(Distribution, WhatIsNotFiniteIsLeftOut) {
  Distribution d;
  const float numbers[] = {NAN, INFINITY, -INFINITY, 2};
  d.add(numbers);
  EXPECT_EQ(d.count(), 1);
  EXPECT_EQ(d.not_finite(), 3);
  EXPECT_EQ(d.sum(), 2);
}

TEST(Distribution, TextsOfOthersAreChecked) {
  for (const char* text : {"", "1 2 3", "1 0 1 1 1 1 99999 1", "1 0 1 1 1 1 3", "a 0 1 1 1 1"})
    user_error([&] { Distribution::from_text(text); });
}

}  // namespace
}  // namespace tessera
