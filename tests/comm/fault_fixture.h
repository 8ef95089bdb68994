#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

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

// Where ranks, threads or forked processes, wait for each other beside the channels under test:
// those end a barrier of their own one after the other.
class MeetingPoint {
 public:
  explicit MeetingPoint(int ranks)
      : ranks_(ranks),
        arrived_(::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) {
    require(arrived_ != MAP_FAILED, "mmap");
  }
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;
  ~MeetingPoint() { ::munmap(arrived_, sizeof(int)); }

  // Returns when all have called it.
  void arrive_and_wait() const {
    std::atomic_ref<int> arrived(*static_cast<int*>(arrived_));
    ++arrived;
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < ranks_) {
      require(std::chrono::steady_clock::now() < end, "not all ranks have come");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  int ranks_;
  void* arrived_;
};

// Ranks that are made in the given way, of which some die, stop or leave.
class FaultTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (is_processes(GetParam()) && kThreadSanitizer)
      GTEST_SKIP() << "ThreadSanitizer does not follow forked processes: ranks are threads only";
  }
  RankJob job(int world,
              std::chrono::milliseconds deadline = std::chrono::milliseconds(20'000)) const {
    RankJob result;
    result.way = GetParam();
    result.world = world;
    result.deadline = deadline;
    return result;
  }
};

}  // namespace tessera
