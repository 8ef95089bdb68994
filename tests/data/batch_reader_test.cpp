#include "data/batch_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"
#include "data/packed_dataset.h"
#include "tests/data/memory_tokens.h"

namespace tessera {
namespace {

constexpr int32_t kEnd = 9999;

std::vector<int64_t> order_of_epoch(const SampleOrder& order, int64_t epoch) {
  std::vector<int64_t> windows;
  for (int64_t k = epoch * order.samples(); k < (epoch + 1) * order.samples(); ++k) {
    EXPECT_EQ(order.at(k).epoch, epoch);
    windows.push_back(order.at(k).window);
  }
  return windows;
}

TEST(SampleOrder, EveryEpochIsAPermutation) {
  for (int64_t samples : {1, 2, 3, 4, 5, 9, 10, 16, 17, 255, 256, 257, 1000, 12345}) {
    SampleOrder order(7, samples, true);
    for (int64_t epoch : {0, 1, 5}) {
      auto windows = order_of_epoch(order, epoch);
      std::ranges::sort(windows);
      for (int64_t i = 0; i < samples; ++i)
        ASSERT_EQ(windows[static_cast<size_t>(i)], i) << samples;
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpochAndNothingElse) {
  SampleOrder a(7, 1000, true), again(7, 1000, true), other(8, 1000, true);
  EXPECT_EQ(order_of_epoch(a, 2), order_of_epoch(again, 2));
  EXPECT_NE(order_of_epoch(a, 2), order_of_epoch(a, 3));
  EXPECT_NE(order_of_epoch(a, 2), order_of_epoch(other, 2));
  // Pinned: a change of the order would make old checkpoints resume on other data.
  EXPECT_EQ(a.at(0).window, 554);
  EXPECT_EQ(a.at(1).window, 126);
  EXPECT_EQ(a.at(1000).window, 399);
  EXPECT_EQ(SampleOrder(7, int64_t{1} << 40, true).at(12345).window, 559067525910);
}

TEST(SampleOrder, WithoutShufflingWindowsComeInFileOrder) {
  SampleOrder order(7, 10, false);
  for (int64_t k = 0; k < 25; ++k) EXPECT_EQ(order.at(k).window, k % 10);
  EXPECT_EQ(order.at(25).epoch, 2);
}

TEST(SampleOrder, WindowsFallOnPlacesEvenly) {
  // Chi-square of (place, window) and of (first window, second window) over many epochs.
  constexpr int64_t kSamples = 7, kEpochs = 14000;
  SampleOrder order(1, kSamples, true);
  std::map<std::pair<int64_t, int64_t>, int> at, pairs;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    auto windows = order_of_epoch(order, epoch);
    for (int64_t i = 0; i < kSamples; ++i) ++at[{i, windows[static_cast<size_t>(i)]}];
    ++pairs[{windows[0], windows[1]}];
  }
  auto chi_square = [](const auto& counts, double expected) {
    double sum = 0;
    for (const auto& [key, n] : counts) sum += (n - expected) * (n - expected) / expected;
    return sum;
  };
  EXPECT_EQ(at.size(), 49u);
  EXPECT_EQ(pairs.size(), 42u);
  EXPECT_LT(chi_square(at, kEpochs / 7.0), 36 + 4 * 8.5);  // 36 degrees of freedom, 4 sigma
  EXPECT_LT(chi_square(pairs, kEpochs / 42.0), 41 + 4 * 9.1);
}

TEST(SampleOrder, NeighboursAreNotKeptTogether) {
  SampleOrder order(1, 10000, true);
  auto windows = order_of_epoch(order, 0);
  int near = 0;
  double displacement = 0;
  for (size_t i = 1; i < windows.size(); ++i) {
    near += std::abs(windows[i] - windows[i - 1]) <= 10;
    displacement += static_cast<double>(std::abs(windows[i] - static_cast<int64_t>(i)));
  }
  EXPECT_LT(near, 60);                                // 20 expected
  EXPECT_NEAR(displacement / 1e4, 10000 / 3.0, 100);  // of a random permutation: N / 3
}

class BatchReaderTest : public testing::Test {
 protected:
  static constexpr int64_t kContext = 5;

  using Row = std::pair<std::vector<int32_t>, std::vector<int32_t>>;
  // Rows of the batch by sample number, checked for being ignored where they hold no sample.
  void collect(const Batch& batch, int64_t rows_per_batch, std::map<int64_t, Row>& rows) {
    ASSERT_EQ(std::ssize(batch.inputs), rows_per_batch * kContext);
    ASSERT_EQ(std::ssize(batch.targets), rows_per_batch * kContext);
    EXPECT_EQ(batch.tokens,
              std::ssize(batch.targets) - std::ranges::count(batch.targets, kIgnoreIndex));
    for (int64_t i = 0; i < rows_per_batch; ++i) {
      auto part = [&](const std::vector<int32_t>& v) {
        return std::vector<int32_t>(v.begin() + i * kContext, v.begin() + (i + 1) * kContext);
      };
      if (i < batch.rows) {
        EXPECT_TRUE(
            rows.emplace(batch.first_sample + i, Row{part(batch.inputs), part(batch.targets)})
                .second);
      } else {
        EXPECT_EQ(part(batch.inputs), std::vector<int32_t>(kContext, kEnd));
        EXPECT_EQ(part(batch.targets), std::vector<int32_t>(kContext, kIgnoreIndex));
      }
    }
  }
  // All rows that R ranks read until the end of the job, or until each has read `batches`.
  std::map<int64_t, Row> read(BatchReaderOptions options, int64_t batches = 1 << 20) {
    std::map<int64_t, Row> rows;
    for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
      BatchReader reader(data_, options);
      Batch batch;
      for (int64_t n = 0; n < batches && reader.next(batch); ++n)
        collect(batch, options.rows, rows);
    }
    return rows;
  }
  BatchReaderOptions options(int64_t rows, int64_t ranks = 1) {
    BatchReaderOptions result;
    result.rows = rows;
    result.ranks = ranks;
    result.end = 2 * data_.samples() + 5;
    result.seed = 3;
    return result;
  }

  static std::vector<uint16_t> ascending(size_t count) {
    std::vector<uint16_t> ids(count);
    std::iota(ids.begin(), ids.end(), uint16_t{0});
    return ids;
  }
  std::vector<uint16_t> ids_ = ascending(5 * 22 + 3);
  MemoryTokens tokens_{ids_};
  PackedDataset data_{tokens_.view(), kContext, kEnd, "'x'"};
};

TEST_F(BatchReaderTest, SameSamplesForAnyBatchSizeRanksAndPrefetch) {
  ASSERT_EQ(data_.samples(), 23);
  const auto expected = read(options(1));
  EXPECT_EQ(std::ssize(expected), options(1).end);
  SampleOrder order(3, data_.samples(), true);
  for (const auto& [k, row] : expected) {
    EXPECT_EQ(row.first[0], order.at(k).window * kContext);  // token i is i
    EXPECT_EQ(row.second[0], order.at(k).window * kContext + 1);
  }
  for (int64_t rows : {1, 2, 3, 7, 51, 80}) {
    for (int64_t ranks : {1, 2, 3, 8}) {
      for (bool prefetch : {false, true}) {
        auto o = options(rows, ranks);
        o.prefetch = prefetch;
        EXPECT_EQ(read(o), expected) << rows << " rows, " << ranks << " ranks";
      }
    }
  }
}

TEST_F(BatchReaderTest, AnEpochPredictsEveryTokenButTheFirstOnce) {
  auto o = options(4);
  o.end = data_.samples();
  std::multiset<int32_t> targets;
  for (const auto& [k, row] : read(o)) targets.insert(row.second.begin(), row.second.end());
  EXPECT_EQ(targets.erase(kIgnoreIndex), 3u);  // 23 windows of 5 for 112 targets
  std::multiset<int32_t> all(ids_.begin() + 1, ids_.end());
  EXPECT_EQ(targets, all);
}

TEST_F(BatchReaderTest, ResumesExactlyOnAnyWorld) {
  const auto expected = read(options(1));
  for (int64_t batches : {1, 3, 4}) {
    auto first = options(3, 2);
    auto rows = read(first, batches);
    BatchReader reader(data_, first);
    Batch batch;
    for (int64_t n = 0; n < batches; ++n) ASSERT_TRUE(reader.next(batch));
    EXPECT_EQ(reader.position(), batches * 6);
    EXPECT_EQ(reader.epoch(), batches * 6 / 23);
    auto second = options(2, 5);
    second.position = reader.position();
    second.prefetch = true;
    for (const auto& [k, row] : read(second)) EXPECT_TRUE(rows.emplace(k, row).second) << k;
    EXPECT_EQ(rows, expected);
  }
}

TEST_F(BatchReaderTest, StopsAtTheEndOfTheJob) {
  auto o = options(4, 3);
  o.end = 13;
  o.rank = 2;
  BatchReader reader(data_, o);
  Batch batch;
  ASSERT_TRUE(reader.next(batch));
  EXPECT_EQ(batch.first_sample, 8);
  EXPECT_EQ(batch.rows, 4);
  ASSERT_TRUE(reader.next(batch));  // samples 20 ... of a job of 13: rank 0 has one row, this none
  EXPECT_EQ(batch.rows, 0);
  EXPECT_EQ(batch.tokens, 0);
  EXPECT_TRUE(reader.done());
  EXPECT_FALSE(reader.next(batch));
  EXPECT_EQ(reader.position(), 13);
}

TEST_F(BatchReaderTest, GoesOnForMoreEpochsThanItBeganWith) {
  const auto expected = read(options(1));
  auto first = options(4, 3);
  first.end = data_.samples();
  auto rows = read(first);
  BatchReader reader(data_, first);
  for (Batch batch; reader.next(batch);) {
  }
  EXPECT_EQ(reader.position(), 23);  // not behind the last row of a batch that was not full
  EXPECT_EQ(reader.epoch(), 1);
  auto second = options(2, 5);
  second.position = reader.position();
  for (const auto& [k, row] : read(second)) EXPECT_TRUE(rows.emplace(k, row).second) << k;
  EXPECT_EQ(rows, expected);
}

TEST(DataHash, IsASumOverPairs) {
  // By the formula in Python; that of 0 is the first number of SplitMix64 with seed 0.
  Batch batch;
  batch.inputs = {0};
  batch.targets = {0};
  EXPECT_EQ(data_hash(batch), 0xe220a8397b1dcdafu);
  batch.inputs = {1, 2, 7, 50256};
  batch.targets = {2, 1, kIgnoreIndex, 0};
  EXPECT_EQ(data_hash(batch), 0xf708acf06309f5b2u);
}

TEST_F(BatchReaderTest, AnEpochHasTheHashOfItsTokensForAnyRanksAndContext) {
  Batch whole;  // every token and the one behind it
  whole.inputs.assign(ids_.begin(), ids_.end() - 1);
  whole.targets.assign(ids_.begin() + 1, ids_.end());
  for (int64_t context : {1, 5, 16, 112}) {
    PackedDataset data(tokens_.view(), context, kEnd, "'x'");
    uint64_t sum = 0;
    for (int64_t rank = 0; rank < 3; ++rank) {
      BatchReader reader(data, {.rows = 2, .ranks = 3, .rank = rank, .end = data.samples()});
      Batch batch;
      while (reader.next(batch)) sum += data_hash(batch);
    }
    EXPECT_EQ(sum, data_hash(whole)) << context;
  }
}

TEST_F(BatchReaderTest, ValidationReadsInFileOrder) {
  auto o = options(4);
  o.shuffle = false;
  o.end = 6;
  auto rows = read(o);
  for (int64_t k = 0; k < 6; ++k) EXPECT_EQ(rows.at(k).first[0], k * kContext);
}

}  // namespace
}  // namespace tessera
