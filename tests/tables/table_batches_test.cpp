#include <gtest/gtest.h>

#include "tables/table.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

TEST(TableBatches, CutsGroupsIntoPartsOfAboutEqualSize) {
  TableBatches batches;
  batches.add_group(0, 0);
  batches.add_group(1000, 100);
  batches.add_group(0, 0);
  batches.add_group(20000, 100);
  batches.add_group(10, int64_t{16} << 20);
  ASSERT_EQ(batches.rows(), 21010);
  // 1; 20000 rows in parts of at most 8192; 16 MiB in parts of about 4.
  ASSERT_EQ(batches.batches(), 1 + 3 + 5);
  EXPECT_EQ(batches.part(1).group, 3u);
  EXPECT_EQ(batches.part(1).rows, 6667);
  EXPECT_EQ(batches.part(8).rows, 2);
  int64_t row = 0;
  for (int64_t i = 0; i < batches.batches(); ++i) {
    const auto part = batches.part(i);
    EXPECT_EQ(batches.first_row(i), row);
    EXPECT_EQ(batches.batch_of(row), i);
    EXPECT_EQ(batches.batch_of(row + part.rows - 1), i);
    row += part.rows;
  }
  EXPECT_EQ(batches.first_row(batches.batches()), row);
}

TEST(TableBatches, RefusesImpossibleGroups) {
  TableBatches batches;
  EXPECT_THROW(batches.add_group(-1, 0), Damaged);
  EXPECT_THROW(batches.add_group(int64_t{1} << 62, 0), Damaged);
  batches.add_group(int64_t{1} << 48, int64_t{1} << 62);
  EXPECT_THROW(batches.add_group(1, 0), Damaged);
  EXPECT_EQ(batches.part(batches.batches() - 1).rows > 0, true);
}

}  // namespace
}  // namespace tessera
