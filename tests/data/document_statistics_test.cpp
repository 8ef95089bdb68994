#include "data/document_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/ignore_index.h"
#include "base/random.h"
#include "base/text.h"
#include "data/best_fit_dataset.h"
#include "data/packed_dataset.h"
#include "data/row_dataset.h"
#include "tests/data/memory_tokens.h"

namespace tessera {
namespace {

std::vector<int64_t> lengths_up_to(uint64_t longest, uint64_t count) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random_below(3, 0, i, longest)));
  return lengths;
}

TEST(LengthHistogram, QuantilesAreNearAndSmallOnesExact) {
  for (uint64_t longest : {100u, 5000u, 3'000'000u}) {
    auto lengths = lengths_up_to(longest, 4001);
    LengthHistogram histogram;
    for (int64_t length : lengths) histogram.add(length);
    std::ranges::sort(lengths);
    EXPECT_EQ(histogram.least(), lengths.front());
    EXPECT_EQ(histogram.largest(), lengths.back());
    EXPECT_EQ(histogram.quantile(1), lengths.back());
    for (double share : {0.0, 0.01, 0.25, 0.5, 0.9, 0.999}) {
      const auto rank = static_cast<size_t>(std::max(1.0, std::ceil(share * 4001))) - 1;
      const int64_t found = histogram.quantile(share);
      EXPECT_GE(found, lengths[rank]);
      EXPECT_LE(static_cast<double>(found), static_cast<double>(lengths[rank]) * 1.016);
      if (longest == 100) {
        EXPECT_EQ(found, lengths[rank]);
      }
    }
    int64_t all = 0, k = 0;
    for (int64_t count : histogram.doublings()) {
      const int64_t low = k == 0 ? 0 : int64_t{1} << (k - 1), high = int64_t{1} << k++;
      EXPECT_EQ(count, std::ranges::count_if(lengths, [&](int64_t length) {
                  return length >= low && length < high;
                }));
      all += count;
    }
    EXPECT_EQ(all, 4001);
  }
  LengthHistogram huge;
  huge.add(int64_t{1} << 61);
  huge.add(0);
  EXPECT_EQ(huge.quantile(0.5), 0);
  EXPECT_EQ(huge.quantile(1), int64_t{1} << 61);
  EXPECT_EQ(LengthHistogram().quantile(0.5), 0);
}

TEST(DuplicateCounter, IsExactAndThenAnEstimate) {
  for (size_t most : {size_t{1} << 20, size_t{500}}) {
    DuplicateCounter counter(most);
    for (uint64_t i = 0; i < 20'000; ++i) {
      const uint64_t words = i % 4 == 3 ? i - 1 : i;  // every fourth is a copy
      const auto word = philox(1, 2, words);
      counter.add((uint64_t{word[0]} << 32) | word[1]);
    }
    EXPECT_EQ(counter.exact(), most > 20'000);
    EXPECT_NEAR(counter.share(), 0.25, most > 20'000 ? 0 : 0.08);
  }
  EXPECT_EQ(DuplicateCounter().share(), 0);
}

TEST(PackingStatistics, SaysWhatTheDataSetsDo) {
  for (int64_t context : {1, 16, 100}) {
    const auto lengths = lengths_up_to(70, 900);
    PackingStatistics packing(context);
    for (int64_t length : lengths) packing.add(length);
    packing.finish();
    const MemoryDocuments documents(lengths);
    const MemoryTokens tokens(std::vector<int32_t>(static_cast<size_t>(documents.tokens()), 1));
    const BestFitDataset best_fit(tokens.view(), documents.view(), context, 0, "'x'");
    const RowDataset rows(tokens.view(), documents.view(), context, 0, 1, "'x'");
    const PackedDataset packed(tokens.view(), context, 0, "'x'");
    EXPECT_EQ(packing.best_fit_windows(), best_fit.samples());
    EXPECT_NEAR(packing.best_fit_padding(), best_fit.padding(), 1e-12);
    EXPECT_EQ(packing.cut_documents(), best_fit.cut_documents());
    EXPECT_NEAR(packing.row_padding(), rows.padding(), 1e-12);
    EXPECT_EQ(packing.packed_windows(), packed.samples());
  }
}

TEST(DocumentStatistics, CountsWhatComesInPieces) {
  DocumentStatistics whole(0, 2, 4), parts(0, 2, 4);
  for (const char* text : {"abcdef", "gh", "abcdef", "", "xyz"}) {
    whole.add_text(text);
    whole.end_document();
    for (const char* c = text; *c != '\0'; ++c) parts.add_text(std::string_view(c, 1));
    parts.end_document();
  }
  for (DocumentStatistics* statistics : {&whole, &parts}) {
    statistics->finish();
    EXPECT_EQ(statistics->lengths().count(), 4);
    EXPECT_EQ(statistics->lengths().total(), 17);
    EXPECT_DOUBLE_EQ(statistics->duplicates().share(), 0.25);
    ASSERT_EQ(statistics->samples().size(), 2u);
    for (const auto& sample : statistics->samples()) EXPECT_LE(sample.text.size(), 4u);
  }
  DocumentStatistics tokens(8, 1, 3);
  tokens.add_tokens(std::vector{5, 6, 700}, std::vector{kIgnoreIndex, kIgnoreIndex, 700});
  tokens.add_tokens(std::vector{5, 6}, std::vector{5, 6});
  tokens.end_document();
  tokens.finish();
  EXPECT_EQ(tokens.not_learned(), 2);
  EXPECT_EQ(tokens.largest_id(), 700);
  EXPECT_EQ(tokens.samples()[0].ids, (std::vector<int32_t>{5, 6, 700}));
  EXPECT_EQ(tokens.samples()[0].length, 5);
  EXPECT_EQ(tokens.packing()->best_fit_windows(), 1);
}

TEST(DocumentStatistics, AnyDocumentMayBeASample) {
  std::vector<int> seen(20);
  DocumentStatistics statistics(0, 5, 9);
  for (int i = 0; i < 2000; ++i) {
    statistics.add_text("a");
    statistics.end_document();
  }
  statistics.finish();
  ASSERT_EQ(statistics.samples().size(), 5u);
  EXPECT_TRUE(
      std::ranges::is_sorted(statistics.samples(), {}, &DocumentStatistics::Sample::document));
  EXPECT_GT(statistics.samples().back().document, 100);
}

}  // namespace
}  // namespace tessera
