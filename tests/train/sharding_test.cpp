// The programs of N ranks against those of one, in lockstep and f64: a pairwise covering array of
// the options. sharding_product_test.cpp runs all of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/train/sharding_cells.h"

namespace tessera {
namespace {

TEST(CoveringArray, HasEveryPossiblePairOnce) {
  // Three factors of 3, 2 and 2; the first two never stand at their last levels together.
  auto possible = [](const Row& row) { return !(row[0] == 2 && row[1] == 1); };
  CoveringArray array({3, 2, 2}, possible);
  std::set<std::vector<int>> pairs;
  for (const Row& row : array.rows()) {
    EXPECT_EQ(std::ranges::count(row, -1), 0);
    EXPECT_TRUE(possible(row));
    for (int f = 0; f < 3; ++f) {
      for (int g = f + 1; g < 3; ++g)
        pairs.insert({f, g, row[static_cast<size_t>(f)], row[static_cast<size_t>(g)]});
    }
  }
  EXPECT_EQ(pairs.size(), 3u * 2 - 1 + 3 * 2 + 2 * 2);
  EXPECT_EQ(array.pairs(), pairs.size());
  EXPECT_LE(array.rows().size(), 7u);
  EXPECT_EQ(array.rows(), CoveringArray({3, 2, 2}, possible).rows());
}

TEST(CoveringArray, OfShardingIsSmallAndComplete) {
  const CoveringArray& array = covering_cells();
  std::set<std::tuple<size_t, int, size_t, int>> pairs;
  for (const Cell& cell : array.rows()) {
    ASSERT_TRUE(is_possible(cell));
    for (size_t f = 0; f < cell.size(); ++f) {
      for (size_t g = f + 1; g < cell.size(); ++g) pairs.insert({f, cell[f], g, cell[g]});
    }
  }
  EXPECT_EQ(pairs.size(), array.pairs());
  EXPECT_LT(array.rows().size(), 60u);
}

class Sharding : public testing::TestWithParam<Cell> {
 protected:
  static CellChecker checker_;
};
CellChecker Sharding::checker_;

TEST_P(Sharding, EqualsOneRank) {
  SCOPED_TRACE(cat("tessera plan ", arguments_of(GetParam())));
  EXPECT_EQ(checker_.check(job_of(GetParam())), "");
}

INSTANTIATE_TEST_SUITE_P(Cells, Sharding, testing::ValuesIn(covering_cells().rows()),
                         [](const auto& cell) { return name_of(cell.param); });

}  // namespace
}  // namespace tessera
