#include "profile/clock_alignment.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "tests/comm/thread_channels.h"

namespace tessera {
namespace {

// Meetings of two ranks whose clocks are `offset` apart, with delays of their messages.
std::vector<ClockRound> meetings(int64_t offset, int rounds) {
  std::vector<ClockRound> list;
  int64_t now = 1'000'000;  // of the other's clock
  for (int i = 0; i < rounds; ++i) {
    auto random = [&](uint64_t stream) {
      return static_cast<int64_t>(random_below(5, stream, static_cast<uint64_t>(i), 90'000));
    };
    const int64_t own_sent = now + random(1), other_sent = now + random(2);
    const int64_t all_said = std::max(own_sent, other_sent);
    const int64_t own_heard = all_said + 1000 + random(3),
                  other_heard = all_said + 1000 + random(4);
    list.push_back({own_sent + offset, own_heard + offset, other_sent, other_heard});
    now = std::max(own_heard, other_heard);
  }
  return list;
}

TEST(ClockOffset, IsWithinItsErrorOfTheTruth) {
  for (int64_t truth : {int64_t{0}, int64_t{123'456'789'012}, int64_t{-98'765'432'109'876}}) {
    int64_t error_before = 1'000'000'000;
    for (int rounds : {1, 4, 16, 64}) {
      const ClockOffset found = clock_offset(meetings(truth, rounds), false);
      EXPECT_LE(std::abs(found.offset - truth), found.error) << rounds;
      EXPECT_LE(found.error, error_before) << "more meetings never make it worse";
      error_before = found.error;
    }
    EXPECT_LT(error_before, 50'000);
  }
}

TEST(ClockOffset, OfOneMachineIsNothingWhereThatIsPossible) {
  EXPECT_EQ(clock_offset(meetings(0, 16), true).offset, 0);
  EXPECT_EQ(clock_offset(meetings(0, 16), true).error, 0);
  const ClockOffset apart = clock_offset(meetings(5'000'000'000, 16), true);
  EXPECT_LE(std::abs(apart.offset - 5'000'000'000), apart.error)
      << "a container with a clock of its own";
}

TEST(ClockOffset, ChangesOnALineBetweenTwoAlignments) {
  const ClockOffset offsets[] = {{1000, 100, 0}, {2000, 200, 0}};
  EXPECT_EQ(aligned_time(1000, offsets), 900);
  EXPECT_EQ(aligned_time(1500, offsets), 1350);
  EXPECT_EQ(aligned_time(2000, offsets), 1800);
  EXPECT_EQ(aligned_time(1500, std::span(offsets, 1)), 1400);
  EXPECT_EQ(aligned_time(1500, {}), 1500);
}

TEST(ClockOffset, IsFoundByRanksOfOneMachine) {
  auto hub = std::make_shared<ThreadHub>(3);
  std::vector<ClockOffset> found(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {});
      found[static_cast<size_t>(rank)] = align_clock(*channels.control);
      channels.control->barrier("end");
    });
  for (std::thread& rank : ranks) rank.join();
  for (const ClockOffset& offset : found) {
    EXPECT_EQ(offset.offset, 0);
    EXPECT_GT(offset.at, 0);
    EXPECT_LE(offset.at, monotonic_nanoseconds());
  }
}

}  // namespace
}  // namespace tessera
