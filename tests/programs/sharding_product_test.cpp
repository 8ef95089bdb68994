// Every combination of strategy, world, degrees, accumulation, model, recomputation and offload,
// where sharding_test.cpp has every pair. Takes many minutes.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "tests/programs/sharding_cells.h"

namespace tessera {
namespace {

class ShardingProduct : public testing::TestWithParam<Cell> {
 protected:
  static void TearDownTestSuite() {
    std::printf("%lld cells are %zu different jobs\n", static_cast<long long>(cells_),
                jobs_.size());
  }
  static CellChecker checker_;
  static std::set<std::string> jobs_;  // already checked, under other names
  static int64_t cells_;
};
CellChecker ShardingProduct::checker_;
std::set<std::string> ShardingProduct::jobs_;
int64_t ShardingProduct::cells_ = 0;

TEST_P(ShardingProduct, EqualsOneRank) {
  for (const Cell& cell : cells_of(GetParam())) {
    ++cells_;
    CellJob job = job_of(cell);
    if (!jobs_.insert(job.key()).second) continue;
    SCOPED_TRACE(cat("tessera plan ", arguments_of(cell)));
    EXPECT_EQ(checker_.check(job), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ShardingProduct, testing::ValuesIn(possible_meshes()),
                         [](const auto& mesh) { return name_of(mesh.param); });

}  // namespace
}  // namespace tessera
