#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>

#include "tests/comm/rank_runner.h"

namespace tessera {

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// All but one; -1: all.
inline void expect_all_say(const std::vector<RankResult>& results, int but, std::string_view part) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (static_cast<int>(rank) == but) continue;
    EXPECT_TRUE(contains(results[rank].error, part))
        << "rank " << rank << " says: " << results[rank].error;
  }
}

// Ranks that are made in the given way, of which some die, stop or leave.
class FaultTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (is_processes(GetParam()) && kThreadSanitizer)
      GTEST_SKIP() << "ThreadSanitizer does not follow forked processes: ranks are threads only";
  }
  RankJob job(int world,
              std::chrono::milliseconds deadline = std::chrono::milliseconds(50'000)) const {
    RankJob result;
    result.way = GetParam();
    result.world = world;
    result.deadline = deadline;
    return result;
  }
};

}  // namespace tessera
