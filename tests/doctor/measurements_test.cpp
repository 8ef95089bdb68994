// What the doctor measures between ranks, which are threads here, and of this host.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "doctor/directory_check.h"
#include "doctor/host_facts.h"
#include "doctor/link_check.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/comm/thread_channels.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

void run_ranks(int ranks, const std::function<void(const Channels&)>& work) {
  auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
      work(channels);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostFacts, AreThoseOfThisHost) {
  const nlohmann::json facts = host_facts();
  EXPECT_GE(facts["cores"], facts["usable_cores"]);
  EXPECT_GT(facts["memory"], facts["available_memory"]);
  EXPECT_GT(facts["open_files_limit"], 0);
  std::set<std::string> names;
  for (const auto& item : facts["interfaces"]) names.insert(item["name"]);
  EXPECT_TRUE(names.contains("lo"));
  EXPECT_EQ(facts["gpu_driver"] == "", !fs::exists("/proc/driver/nvidia/version"));
}

TEST(Links, AllPairsAreMeasured) {
  for (int ranks : {2, 3, 4, 5, 8}) {
    std::vector<std::vector<Link>> found(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](const Channels& channels) {
      found[static_cast<size_t>(channels.control->rank())] = measure_links(channels, 4096);
    });
    std::set<std::pair<int, int>> pairs;
    for (const Link& link : found[0]) {
      EXPECT_LT(link.low, link.high);
      EXPECT_GT(link.latency, 0);
      EXPECT_GT(link.bandwidth, 0);
      pairs.insert({link.low, link.high});
    }
    EXPECT_EQ(std::ssize(pairs), ranks * (ranks - 1) / 2) << ranks;
    EXPECT_EQ(found[0].size(), pairs.size());
    for (const auto& other : found) EXPECT_EQ(other.size(), found[0].size());
  }
}

TEST(Clocks, OfOneHostAgree) {
  run_ranks(3, [](const Channels& channels) {
    const std::vector<double> offsets = clock_offsets(*channels.control);
    ASSERT_EQ(offsets.size(), 3u);
    EXPECT_EQ(offsets[0], 0);
    for (double offset : offsets) EXPECT_LT(std::abs(offset), 5);
  });
}

TEST(Directories, AreWrittenReadAndLeftAsTheyWere) {
  ScratchDirectory scratch;
  fs::create_directories(scratch / "other");
  const std::string same = scratch.path().string(), other = (scratch / "other").string();
  run_ranks(2, [&](const Channels& channels) {
    auto all = check_directory(channels.control.get(), same, 100'000);
    ASSERT_EQ(all.size(), 2u);
    for (const auto& rank : all) {
      EXPECT_TRUE(rank["sees_same_files"]);
      EXPECT_GT(rank["write"], 0);
      EXPECT_GT(rank["read"], 0);
    }
    // Under one name the ranks have directories of their own.
    all = check_directory(channels.control.get(), channels.control->rank() == 0 ? same : other,
                          100'000);
    EXPECT_TRUE(all[0]["sees_same_files"]);
    EXPECT_FALSE(all[1]["sees_same_files"]);
    // One of them cannot use it.
    all = check_directory(channels.control.get(),
                          channels.control->rank() == 0 ? same : same + "/none", 100'000);
    EXPECT_FALSE(all[0].contains("error"));
    expect_contains(all[1]["error"].get<std::string>(), "/none");
    // It is the first, whose file nobody can see.
    all = check_directory(channels.control.get(),
                          channels.control->rank() == 0 ? same + "/none" : same, 100'000);
    expect_contains(all[0]["error"].get<std::string>(), "/none");
    EXPECT_GT(all[1]["write"], 0);
    EXPECT_FALSE(all[1].contains("sees_same_files"));
  });
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(scratch.path()), {}), 1);
  EXPECT_TRUE(check_directory(nullptr, same, 10)[0]["sees_same_files"]);
  expect_contains(check_directory(nullptr, same + "/\xff", 10)[0]["error"].get<std::string>(),
                  "/\xef\xbf\xbd");
}

}  // namespace
}  // namespace tessera
