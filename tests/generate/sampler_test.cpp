#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "base/random.h"

namespace tessera {
namespace {

SamplingOptions with(double temperature, std::optional<int64_t> top_k = {}, double top_p = 1,
                     int64_t seed = 0) {
  return {temperature, top_k, top_p, seed};
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

// How often each token comes, as a share of many draws.
std::map<int32_t, double> shares(const SamplingOptions& options, const std::vector<float>& logits,
                                 int draws = 20000) {
  Sampler sampler(options);
  std::map<int32_t, double> counts;
  for (int i = 0; i < draws; ++i)
    counts[sampler.choose(logits, static_cast<uint64_t>(i))] += 1.0 / draws;
  return counts;
}

TEST(Sampler, DrawsByProbability) {
  auto counts = shares(with(1), logits_of({0.1, 0.6, 0.05, 0.25}));
  for (auto [id, share] : {std::pair{0, 0.1}, {1, 0.6}, {2, 0.05}, {3, 0.25}})
    EXPECT_NEAR(counts[id], share, 0.012) << id;
  // At temperature 2 the logits are halved: probabilities go with their square roots.
  counts = shares(with(2), logits_of({0.1, 0.6, 0.05, 0.25}));
  double sum = 0;
  for (double p : {0.1, 0.6, 0.05, 0.25}) sum += std::sqrt(p);
  EXPECT_NEAR(counts[1], std::sqrt(0.6) / sum, 0.012);
}

TEST(Sampler, TemperatureZeroIsTheLikeliestAndTheLowerOfTwo) {
  Sampler sampler(with(0));
  std::vector<float> logits{1, 5, 2, 5};
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(sampler.choose(logits, i), 1);
  EXPECT_EQ(Sampler(with(1, 1)).choose(logits, 3), 1);
  EXPECT_EQ(Sampler(with(1, {}, 0)).choose(logits, 3), 1);
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  auto counts = shares(with(1, 2), logits_of({0.1, 0.5, 0.3, 0.1}));
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[1], 0.5 / 0.8, 0.012);
  // Of equal ones the lower ids.
  counts = shares(with(1, 2), {0, 0, 0, 0}, 200);
  EXPECT_TRUE(counts.contains(0) && counts.contains(1) && counts.size() == 2);
  EXPECT_EQ(shares(with(1, 100), {0, 1, 2}, 2000).size(), 3u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  std::vector<float> logits = logits_of({0.1, 0.5, 0.3, 0.1});
  EXPECT_EQ(shares(with(1, {}, 0.49), logits, 500).size(), 1u);
  EXPECT_EQ(shares(with(1, {}, 0.79), logits, 500).size(), 2u);
  auto counts = shares(with(1, {}, 0.85), logits);
  EXPECT_EQ(counts.size(), 3u);  // the one that passes the limit is kept, the lower of two
  EXPECT_NEAR(counts[0], 0.1 / 0.9, 0.012);
  EXPECT_FALSE(counts.contains(3));
  // Shares are those among the top k: 0.5 of 0.8 reaches 0.6.
  EXPECT_EQ(shares(with(1, 2, 0.6), logits, 500).size(), 1u);
}

TEST(Sampler, TopPOverALongTail) {
  // 3000 tokens, so that the sorted part grows several times.
  std::vector<double> probabilities;
  for (int i = 0; i < 3000; ++i) probabilities.push_back(1.0 / (1 + i * 7 % 3000));
  double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& p : probabilities) p /= sum;
  std::vector<double> sorted = probabilities;
  std::sort(sorted.rbegin(), sorted.rend());
  double reached = 0, least = 0;
  for (size_t i = 0; reached < 0.9; ++i) reached += least = sorted[i];
  auto counts = shares(with(1, {}, 0.9), logits_of(probabilities), 1500);
  EXPECT_GT(counts.size(), 300u);
  for (const auto& [id, share] : counts)
    EXPECT_GE(probabilities[static_cast<size_t>(id)], least * 0.999) << id;
}

TEST(Sampler, DrawsDependOnSeedAndIndexAlone) {
  std::vector<float> logits;
  for (uint64_t i = 0; i < 500; ++i) logits.push_back(static_cast<float>(random_normal(3, 1, i)));
  for (auto [k, p] : {std::pair<std::optional<int64_t>, double>{std::nullopt, 1.0},
                      {40, 1.0},
                      {std::nullopt, 0.7},
                      {40, 0.7}}) {
    Sampler a(with(0.8, k, p, 7)), b(with(0.8, k, p, 7)), other(with(0.8, k, p, 8));
    std::vector<int32_t> first, backwards(50), different;
    for (uint64_t i = 0; i < 50; ++i) first.push_back(a.choose(logits, i));
    for (uint64_t i = 50; i-- > 0;) backwards[i] = b.choose(logits, i);
    for (uint64_t i = 0; i < 50; ++i) different.push_back(other.choose(logits, i));
    EXPECT_EQ(first, backwards);
    EXPECT_NE(first, different);
  }
}

}  // namespace
}  // namespace tessera
