#include "train/rank_watch.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tests/comm/thread_channels.h"
#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// What rank 0 was told last.
class Table {
 public:
  RankWatch::Tell tell() {
    return [this](const std::vector<std::string>& states) {
      std::lock_guard lock(mutex_);
      states_ = states;
    };
  }
  // Waits until the rank says so, half a minute at most.
  std::optional<nlohmann::json> wait_for(size_t rank, const char* key, const nlohmann::json& what) {
    for (int i = 0; i < 3000; ++i) {
      {
        std::lock_guard lock(mutex_);
        if (states_.size() > rank)
          if (auto state = nlohmann::json::parse(states_[rank]); state.value(key, what) == what)
            if (state.contains(key)) return state;
      }
      std::this_thread::sleep_for(10ms);
    }
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> states_;
};

TEST(RankWatch, TellsWhatAllRanksDoUntilOneEnds) {
  auto hub = std::make_shared<ThreadHub>(3);
  Table table;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {30s});
      RankWatch watch(channels.control.get(), rank == 0 ? table.tell() : nullptr);
      watch.doing("training");
      if (rank == 2) watch.step(sample_report());
      if (rank == 0) {
        const auto last = table.wait_for(2, "step", 13);
        ASSERT_TRUE(last);
        EXPECT_EQ((*last)["rank"], 2);
        EXPECT_EQ((*last)["step_seconds"], 2.5);
        EXPECT_TRUE(table.wait_for(1, "doing", "training"));
      }
      watch.end({});
    });
  }
  for (std::thread& t : ranks) t.join();
}

// As train_command does it: whoever fails says so while its watch still waits for the others.
TEST(RankWatch, AFailureOfARankKeepsNobody) {
  auto hub = std::make_shared<ThreadHub>(2);
  Table table;
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] {
    Channels channels = thread_channels(hub, 1, {300s});
    RankWatch watch(channels.control.get(), nullptr);
    std::this_thread::sleep_for(1500ms);
    watch.end({.failed = true});
    channels.control->report_failure("a test");
  });
  {
    Channels channels = thread_channels(hub, 0, {300s});
    RankWatch watch(channels.control.get(), table.tell());
    EXPECT_TRUE(table.wait_for(1, "doing", "starting"));
    other.join();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

TEST(RankWatch, OneRankNeedsNobody) {
  Table table;
  RankWatch watch(nullptr, table.tell());
  watch.doing("validating");
  EXPECT_TRUE(table.wait_for(0, "doing", "validating"));
}

}  // namespace
}  // namespace tessera
