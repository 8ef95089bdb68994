// Samples made of whole documents: rows, and windows packed without cutting.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "data/best_fit_dataset.h"
#include "data/row_dataset.h"
#include "tests/base/error_expectation.h"
#include "tests/data/memory_tokens.h"

namespace tessera {
namespace {

constexpr int32_t kFiller = 9;
constexpr int32_t kFirst = 100;  // the id of token 0; each is one more than the one before

struct Data {
  explicit Data(const std::vector<int64_t>& lengths)
      : documents(lengths), tokens(ascending(documents.tokens())) {}
  static std::vector<int32_t> ascending(int64_t count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), kFirst);
    return ids;
  }
  MemoryDocuments documents;
  MemoryTokens tokens;
};

struct Row {
  explicit Row(int64_t context)
      : inputs(static_cast<size_t>(context), -7), targets(inputs), starts(inputs) {}
  int64_t fill(const SampleSource& source, int64_t i) {
    return source.sample(i, {inputs, targets, starts});
  }
  std::vector<int32_t> inputs, targets, starts;
};

std::vector<int64_t> lengths_of_all_sizes(uint64_t seed, size_t count, uint64_t longest) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random_below(seed, 0, i, longest)));
  return lengths;
}

TEST(RowDataset, ARowOfTTokensHasOneTargetLess) {
  Data data({4, 2, 1, 3});
  RowDataset rows(data.tokens.view(), data.documents.view(), 4, kFiller, 1, "'x'");
  ASSERT_EQ(rows.samples(), 4);
  Row row(4);
  EXPECT_EQ(row.fill(rows, 0), 3);
  EXPECT_EQ(row.inputs, (std::vector<int32_t>{100, 101, 102, 103}));
  EXPECT_EQ(row.targets, (std::vector<int32_t>{101, 102, 103, kIgnoreIndex}));
  EXPECT_EQ(row.starts, (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(row.fill(rows, 1), 1);
  EXPECT_EQ(row.inputs, (std::vector<int32_t>{104, 105, kFiller, kFiller}));
  EXPECT_EQ(row.targets, (std::vector<int32_t>{105, kIgnoreIndex, kIgnoreIndex, kIgnoreIndex}));
  EXPECT_EQ(row.starts, (std::vector<int32_t>{0, 0, 2, 2}));
  EXPECT_EQ(row.fill(rows, 2), 0);
  EXPECT_EQ(row.inputs[0], 106);
  EXPECT_EQ(rows.short_rows(), 3);
  EXPECT_DOUBLE_EQ(rows.padding(), 6.0 / 16);
  EXPECT_EQ(rows.warning(),
            "data set 'x': 3 of 4 rows are shorter than the context of 4 tokens; 37.5% of all "
            "positions are filled up and ignored");
  Data full({4, 5});
  EXPECT_EQ(RowDataset(full.tokens.view(), full.documents.view(), 4, kFiller, 1, "'x'").warning(),
            "");
}

TEST(RowDataset, TheLastOfTPlusOneTokensIsATargetAlone) {
  Data data({5, 6, 5});
  RowDataset rows(data.tokens.view(), data.documents.view(), 4, kFiller, 1, "'x'");
  Row row(4);
  EXPECT_EQ(row.fill(rows, 0), 4);
  EXPECT_EQ(row.inputs, (std::vector<int32_t>{100, 101, 102, 103}));
  EXPECT_EQ(row.targets, (std::vector<int32_t>{101, 102, 103, 104}));
  EXPECT_EQ(row.fill(rows, 1), 3);
  EXPECT_EQ(row.targets[3], kIgnoreIndex);
  EXPECT_EQ(row.fill(rows, 2), 4);
  EXPECT_EQ(row.targets[3], 115);
  expect_contains(rows.warning(), "1 of 3 rows are longer than the context of 4 tokens; 12.5% of ");
}

TEST(RowDataset, WhatIsNotLearnedIsNoTarget) {
  Data data({5, 5});
  data.tokens.learned = [](int64_t token) { return token % 5 > 2; };
  RowDataset rows(data.tokens.view(), data.documents.view(), 5, kFiller, 1, "'x'");
  Row row(5);
  for (int64_t i : {0, 1}) {
    EXPECT_EQ(row.fill(rows, i), 2);
    const auto id = static_cast<int32_t>(kFirst + 5 * i);
    EXPECT_EQ(row.targets,
              (std::vector<int32_t>{kIgnoreIndex, kIgnoreIndex, id + 3, id + 4, kIgnoreIndex}));
  }
}

TEST(RowDataset, OfLongRowsAPartIsTakenFromAnywhere) {
  constexpr int64_t kRows = 3000, kLength = 10, kContext = 7;
  Data data(std::vector<int64_t>(kRows, kLength));
  RowDataset a(data.tokens.view(), data.documents.view(), kContext, kFiller, 1, "'x'");
  RowDataset b(data.tokens.view(), data.documents.view(), kContext, kFiller, 2, "'x'");
  Row row(kContext), again(kContext), other(kContext);
  std::map<int64_t, int> starts;
  int64_t same = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(row.fill(a, i), kContext - 1);
    again.fill(a, i);
    EXPECT_EQ(row.inputs, again.inputs);
    ++starts[row.inputs[0] - kFirst - i * kLength];
    for (size_t t = 0; t < kContext; ++t) {
      EXPECT_EQ(row.inputs[t], row.inputs[0] + static_cast<int32_t>(t));
      EXPECT_EQ(row.targets[t], t + 1 < kContext ? row.inputs[t] + 1 : kIgnoreIndex);
    }
    other.fill(b, i);
    same += row.inputs == other.inputs;
  }
  ASSERT_EQ(starts.size(), 4u);  // 0 to 3
  for (auto [start, count] : starts) {
    EXPECT_GE(start, 0);
    EXPECT_LE(start, 3);
    EXPECT_NEAR(count, kRows / 4, 5 * 24);  // five deviations
  }
  EXPECT_NEAR(static_cast<double>(same), kRows / 4.0, 5 * 24);
}

TEST(RowDataset, NothingToPredictIsAnError) {
  Data none({}), ones({1, 1});
  for (Data* data : {&none, &ones}) {
    expect_contains(user_error([&] {
                      RowDataset(data->tokens.view(), data->documents.view(), 4, 0, 1, "'x.json'");
                    }),
                    "data set 'x.json' is empty");
    expect_contains(user_error([&] {
                      BestFitDataset(data->tokens.view(), data->documents.view(), 4, 0, "'x'");
                    }),
                    "data set 'x' is empty");
  }
}

// Every token is an input exactly once, and a target once but for the first of each document.
void check_best_fit(const std::vector<int64_t>& lengths, int64_t context, int64_t buffer) {
  SCOPED_TRACE(cat(lengths.size(), " documents, context ", context, ", buffer ", buffer));
  Data data(lengths);
  BestFitDataset windows(data.tokens.view(), data.documents.view(), context, kFiller, "'x'",
                         buffer);
  const auto count = static_cast<size_t>(data.documents.tokens());
  std::vector<int> seen(count), predicted(count), first(count), last(count);
  std::vector<int64_t> begins(count);  // of the token's document
  data.documents.view().for_each([&](TokenRange range) {
    for (int64_t t = range.begin; t < range.end; ++t) begins[static_cast<size_t>(t)] = range.begin;
    first[static_cast<size_t>(range.begin)] = 1;
    last[static_cast<size_t>(range.end - 1)] = 1;
  });
  Row row(context);
  int64_t fillers = 0, targets = 0;
  for (int64_t w = 0; w < windows.samples(); ++w) {
    targets += row.fill(windows, w);
    for (size_t t = 0; t < row.inputs.size(); ++t) {
      const auto start = static_cast<size_t>(row.starts[t]);
      ASSERT_LE(start, t);
      if (row.inputs[t] == kFiller) {
        ++fillers;
        ASSERT_EQ(row.targets[t], kIgnoreIndex);
        continue;
      }
      const auto token = static_cast<size_t>(row.inputs[t] - kFirst);
      ++seen[token];
      ASSERT_EQ(row.targets[t], last[token] ? kIgnoreIndex : row.inputs[t] + 1);
      if (!last[token]) ++predicted[token + 1];
      // A piece begins with its document, or at a multiple of the context in it.
      ASSERT_EQ(row.inputs[start] + static_cast<int32_t>(t - start), row.inputs[t]);
      if (start == t) {
        ASSERT_EQ((static_cast<int64_t>(token) - begins[token]) % context, 0);
      } else {
        ASSERT_FALSE(first[token]);
      }
    }
  }
  for (size_t token = 0; token < count; ++token) {
    ASSERT_EQ(seen[token], 1) << token;
    ASSERT_EQ(predicted[token], 1 - first[token]) << token;
  }
  EXPECT_EQ(targets, static_cast<int64_t>(count) - std::ssize(lengths));
  const auto positions = static_cast<double>(windows.samples() * context);
  EXPECT_NEAR(windows.padding(), static_cast<double>(fillers) / positions, 1e-12);
}

TEST(BestFitDataset, LosesNoTokenAndRepeatsNone) {
  for (int64_t context : {1, 2, 7, 16}) {
    for (int64_t buffer : {1, 3, 1000}) {
      for (uint64_t seed : {1u, 2u, 3u})
        check_best_fit(lengths_of_all_sizes(seed, 120, 40), context, buffer);
      check_best_fit({2}, context, buffer);
      check_best_fit({context, 2 * context, 2 * context + 1, 3}, context, buffer);
    }
  }
}

TEST(BestFitDataset, CutsOnlyWhatDoesNotFit) {
  Data data({5, 3, 12, 2});
  BestFitDataset windows(data.tokens.view(), data.documents.view(), 8, kFiller, "'x'");
  EXPECT_EQ(windows.cut_documents(), 1);
  // 12 is cut into 8 and 4; then 5 with 3 and 4 with 2.
  ASSERT_EQ(windows.samples(), 3);
  Row row(8);
  EXPECT_EQ(row.fill(windows, 0), 8);  // the document goes on: all are targets
  EXPECT_EQ(row.inputs.front(), 108);
  EXPECT_EQ(row.fill(windows, 1), 6);
  EXPECT_EQ(row.inputs, (std::vector<int32_t>{100, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(row.targets,
            (std::vector<int32_t>{101, 102, 103, 104, kIgnoreIndex, 106, 107, kIgnoreIndex}));
  EXPECT_EQ(row.starts, (std::vector<int32_t>{0, 0, 0, 0, 0, 5, 5, 5}));
  EXPECT_EQ(row.fill(windows, 2), 4);
  EXPECT_EQ(row.inputs, (std::vector<int32_t>{116, 117, 118, 119, 120, 121, kFiller, kFiller}));
  EXPECT_EQ(row.starts, (std::vector<int32_t>{0, 0, 0, 0, 4, 4, 6, 6}));
  EXPECT_DOUBLE_EQ(windows.padding(), 2.0 / 24);
}

TEST(BestFitDataset, WhatIsNotLearnedIsNoTarget) {
  Data data({4, 4});
  data.tokens.learned = [](int64_t token) { return token % 4 == 2; };
  BestFitDataset windows(data.tokens.view(), data.documents.view(), 8, kFiller, "'x'");
  Row row(8);
  EXPECT_EQ(row.fill(windows, 0), 2);
  EXPECT_EQ(row.targets[1], 102);
  EXPECT_EQ(row.targets[5], 106);
}

}  // namespace
}  // namespace tessera
