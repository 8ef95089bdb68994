#include "launch/repeated_warnings.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

const RepeatedWarnings::TimePoint kStart{};

std::string warning(const std::string& second, const std::string& text = "the disk is slow") {
  return "2026-01-31 12:00:" + second + " W [saver.cpp:12] " + text;
}

TEST(RepeatedWarnings, OneLineComesOutForAllRanksThatSayTheSame) {
  RepeatedWarnings warnings;
  EXPECT_EQ(warnings.next(), RepeatedWarnings::TimePoint::max());
  EXPECT_TRUE(warnings.take(2, warning("00"), kStart));
  EXPECT_TRUE(warnings.take(0, warning("01"), kStart + 100ms));
  EXPECT_TRUE(warnings.take(1, warning("01"), kStart + 200ms));
  EXPECT_TRUE(warnings.take(1, warning("01", "another"), kStart + 200ms));
  EXPECT_EQ(warnings.due(kStart + 300ms), Lines{});
  EXPECT_EQ(warnings.next(), kStart + 500ms);
  EXPECT_EQ(warnings.due(kStart + 500ms), Lines{"[rank 2] " + warning("00") + " (on 3 ranks)"});
  EXPECT_EQ(warnings.due(kStart + 700ms), Lines{"[rank 1] " + warning("01", "another")});
}

TEST(RepeatedWarnings, WhatComesAgainIsCounted) {
  RepeatedWarnings warnings;
  EXPECT_TRUE(warnings.take(0, warning("00"), kStart));
  EXPECT_EQ(warnings.due(kStart + 1s), Lines{"[rank 0] " + warning("00")});
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(warnings.take(i % 4, warning("30"), kStart + 30s));
  EXPECT_EQ(warnings.due(kStart + 60s), Lines{});
  EXPECT_EQ(warnings.due(kStart + 61s),
            Lines{"[rank 0] " + warning("30") + " (40 times more, on 4 ranks)"});
  // A minute later it is forgotten, and new.
  EXPECT_EQ(warnings.due(kStart + 121s), Lines{});
  EXPECT_TRUE(warnings.take(3, warning("59"), kStart + 200s));
  EXPECT_TRUE(warnings.take(3, warning("59"), kStart + 200s));
  EXPECT_EQ(warnings.due(kStart + 201s), Lines{"[rank 3] " + warning("59") + " (2 times)"});
}

TEST(RepeatedWarnings, AtTheEndNothingIsHeldBack) {
  RepeatedWarnings warnings;
  EXPECT_TRUE(warnings.take(0, warning("00"), kStart));
  EXPECT_EQ(warnings.due(kStart, true), Lines{"[rank 0] " + warning("00")});
  EXPECT_EQ(warnings.due(kStart, true), Lines{});
}

TEST(RepeatedWarnings, TheOldestComesFirstAndAnErrorIsNotAheadOfWhatItsRankSaid) {
  RepeatedWarnings warnings;
  EXPECT_TRUE(warnings.take(0, warning("00", "the disk is full"), kStart));
  EXPECT_TRUE(warnings.take(1, warning("00", "a bad file"), kStart));
  EXPECT_TRUE(warnings.take(1, warning("00", "no room"), kStart));
  warnings.release(1, kStart);
  EXPECT_EQ(warnings.due(kStart), (Lines{"[rank 1] " + warning("00", "a bad file"),
                                         "[rank 1] " + warning("00", "no room")}));
  EXPECT_TRUE(warnings.take(0, warning("00", "another"), kStart));
  EXPECT_EQ(warnings.due(kStart + 1s), (Lines{"[rank 0] " + warning("00", "the disk is full"),
                                              "[rank 0] " + warning("00", "another")}));
}

TEST(RepeatedWarnings, OtherLinesPass) {
  RepeatedWarnings warnings;
  for (const char* line :
       {"", "W [", "2026-01-31 12:00:00 I [a.cpp:1] information", "tessera: an error",
        "2026-01-31 12:00:00 W", "some text that is longer W [a.cpp:1] than a stamp"})
    EXPECT_FALSE(warnings.take(0, line, kStart)) << line;
  EXPECT_EQ(warnings.due(kStart + 1s, true), Lines{});
}

TEST(RepeatedWarnings, AFloodOfDifferentOnesIsNotKept) {
  RepeatedWarnings warnings;
  int taken = 0;
  for (int i = 0; i < 5000; ++i)
    taken += warnings.take(0, warning("00", std::to_string(i)), kStart) ? 1 : 0;
  EXPECT_EQ(taken, 1000);
  EXPECT_EQ(warnings.due(kStart + 1s).size(), 1000u);
}

}  // namespace
}  // namespace tessera
