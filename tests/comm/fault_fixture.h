#pragma once
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

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

// poll() takes no more entries than files may be open. Returns how many might be before.
inline rlim_t limit_open_files(rlim_t most) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = std::exchange(limit.rlim_cur, most);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return before;
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
