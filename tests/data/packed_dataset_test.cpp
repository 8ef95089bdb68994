#include "data/packed_dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/data/memory_tokens.h"

namespace tessera {
namespace {

constexpr int32_t kEnd = 60000;

MemoryTokens ascending(int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 100);
  return MemoryTokens(ids);
}

// Every token but the first is a target exactly once, behind exactly the tokens before it.
void check_nothing_lost(int64_t count, int64_t context) {
  SCOPED_TRACE(cat(count, " tokens, context ", context));
  const auto ids = ascending(count);
  PackedDataset data(ids.view(), context, kEnd, "'x'");
  std::vector<int32_t> inputs(static_cast<size_t>(context)), targets(inputs.size());
  int64_t next = 0, predicted = 0;
  for (int64_t w = 0; w < data.samples(); ++w) {
    int64_t real = data.sample(w, {inputs, targets, {}});
    ASSERT_GT(real, 0);
    for (size_t i = 0; i < inputs.size(); ++i, ++next) {
      EXPECT_EQ(inputs[i], next < count ? 100 + next : kEnd);
      EXPECT_EQ(targets[i], next + 1 < count ? 101 + next : kIgnoreIndex);
      predicted += targets[i] != kIgnoreIndex;
    }
    EXPECT_EQ(real, w + 1 < data.samples() ? context : (count - 2) % context + 1);
  }
  EXPECT_EQ(predicted, count - 1);
}

TEST(PackedDataset, LosesNoToken) {
  for (int64_t context : {1, 2, 3, 7, 16}) {
    for (int64_t count = std::max<int64_t>(2, context); count < 4 * context + 3; ++count) {
      check_nothing_lost(count, context);
    }
  }
}

TEST(PackedDataset, SaysWhereDocumentsStart) {
  const MemoryTokens ids(std::vector<int32_t>{1, 2, kEnd, 3, kEnd, kEnd, 4, 5, 6, 7});
  PackedDataset data(ids.view(), 8, kEnd, "'x'");
  std::vector<int32_t> inputs(8), targets(8), starts(8);
  data.sample(0, {inputs, targets, starts});
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6, 6}));
  data.sample(1, {inputs, targets, starts});  // 6, 7, then end-of-text
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 0, 0, 3, 4, 5, 6, 7}));
}

// Whatever ids are at their ends, in whatever part of the store.
TEST(PackedDataset, DocumentsAreThoseOfTheTable) {
  const MemoryTokens ids(std::vector<int32_t>{1, 2, kEnd, 3, kEnd, 4, 5, 6, 7, 8, 9});
  const MemoryDocuments documents(std::vector<int64_t>{2, 4, 1, 4});
  PackedDataset data(ids.view(), 4, kEnd, "'x'", documents.view());
  std::vector<int32_t> inputs(4), targets(4), starts(4);
  auto starts_of = [&](const PackedDataset& from, int64_t window) {
    from.sample(window, {inputs, targets, starts});
    return starts;
  };
  EXPECT_EQ(starts_of(data, 0), (std::vector<int32_t>{0, 0, 2, 2}));
  EXPECT_EQ(starts_of(data, 1), (std::vector<int32_t>{0, 0, 2, 3}));
  EXPECT_EQ(starts_of(data, 2), (std::vector<int32_t>{0, 0, 0, 3}));  // then no token
  PackedDataset part(ids.view().slice(5, 6), 4, kEnd, "'x'", documents.view());
  EXPECT_EQ(starts_of(part, 0), (std::vector<int32_t>{0, 1, 2, 2}));
  EXPECT_EQ(starts_of(part, 1), (std::vector<int32_t>{0, 0, 2, 2}));
  EXPECT_EQ(inputs, (std::vector<int32_t>{8, 9, kEnd, kEnd}));
}

TEST(PackedDataset, WhatIsNotLearnedIsNoTarget) {
  auto ids = ascending(10);
  ids.learned = [](int64_t token) { return token % 3 == 0; };
  PackedDataset data(ids.view().slice(1, 9), 4, kEnd, "'x'");
  std::vector<int32_t> inputs(4), targets(4);
  EXPECT_EQ(data.sample(0, {inputs, targets, {}}), 1);
  EXPECT_EQ(inputs, (std::vector<int32_t>{101, 102, 103, 104}));
  EXPECT_EQ(targets, (std::vector<int32_t>{kIgnoreIndex, 103, kIgnoreIndex, kIgnoreIndex}));
  EXPECT_EQ(data.sample(1, {inputs, targets, {}}), 2);
}

TEST(PackedDataset, TooLittleDataIsAnErrorWithBothNumbers) {
  const auto ids = ascending(7);
  auto make = [&](int64_t count, int64_t context) {
    return user_error(
        [&] { PackedDataset data(ids.view().slice(0, count), context, kEnd, "'x.txt'"); });
  };
  expect_contains(make(0, 4), "data set 'x.txt' is empty: it has 0 tokens");
  expect_contains(make(1, 1), "it has 1 tokens");
  std::string message = make(7, 8);
  expect_contains(message, "context is longer than the data");
  expect_contains(message, "--max_context_width is 8");
  expect_contains(message, "'x.txt' has 7 tokens");
}

}  // namespace
}  // namespace tessera
