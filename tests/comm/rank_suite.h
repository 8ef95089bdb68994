#pragma once
#include <gtest/gtest.h>

#include <tuple>

#include "tests/comm/rank_runner.h"

namespace tessera {

// What holds of ranks that are made in any way, of any number of them.
class RankSuite : public testing::TestWithParam<std::tuple<int, Way>> {
 protected:
  void SetUp() override {
    if (is_processes(way()) && kThreadSanitizer)
      GTEST_SKIP() << "ThreadSanitizer does not follow forked processes: ranks are threads only";
  }
  Way way() const { return std::get<1>(GetParam()); }
  int world() const { return std::get<0>(GetParam()); }
  // `body` takes the Communicator or the Channels of a rank.
  template <class Body>
  void run(const Body& body) const {
    std::vector<RankResult> results = run_ranks({way(), world()}, body);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].error, "") << "rank " << rank;
      EXPECT_EQ(results[rank].signal, 0) << "rank " << rank;
    }
  }
};

}  // namespace tessera
