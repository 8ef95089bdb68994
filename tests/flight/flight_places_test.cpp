#include "flight/flight_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What processes left that were killed while they made their rings; of one that makes them now
// nothing is known either, but that it began just now.
TEST(FlightPlaces, WhatSaysNothingOfItsMakerGoesWhenItIsOld) {
  const ScratchDirectory flights;
  const std::vector<std::string> old_rings{"old-1-ring", "old-2-ring", "old-3-ring", "old-4-ring",
                                           "old-5-ring"};  // one more than are kept
  std::vector<std::string> all{"old", "new", "new-ring"};
  all.insert(all.end(), old_rings.begin(), old_rings.end());
  for (const std::string& what : all) {
    const fs::path job = flights / what, ring = job / "attempt_0" / "rank_0.ring";
    fs::create_directories(ring.parent_path());
    const bool has_ring = what.ends_with("ring"), old = what[0] == 'o';
    if (has_ring) write_file_atomic(ring, std::string(4096, '\0'));
    const auto time = fs::file_time_type::clock::now() - std::chrono::hours(old ? 2 : 0);
    if (has_ring) fs::last_write_time(ring, time);
    fs::last_write_time(job, time);
  }
  EXPECT_EQ(newest_flight(flights.path()), flights / "new-ring");
  remove_old_flights(flights.path());
  EXPECT_FALSE(fs::exists(flights / "old"));
  const auto is_there = [&](const std::string& what) { return fs::exists(flights / what); };
  EXPECT_FALSE(std::ranges::all_of(old_rings, is_there));
  EXPECT_TRUE(fs::exists(flights / "new"));
  EXPECT_TRUE(fs::exists(flights / "new-ring"));
}

}  // namespace
}  // namespace tessera
