#include "flight/flight_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What processes left that were killed while they made their rings; of one that makes them now
// nothing is known either, but that it began just now.
TEST(FlightPlaces, WhatSaysNothingOfItsMakerGoesWhenItIsOld) {
  make_own_flights();
  const std::string id = random_id();
  const auto directory = [&](const std::string& what) {
    return own_flights() / cat(id, "-", what);
  };
  struct Removal {
    ~Removal() {
      std::error_code ignored;
      for (const fs::path& path : paths) fs::remove_all(path, ignored);
    }
    std::vector<fs::path> paths;
  } removal;
  const std::vector<std::string> old_rings{"old-1-ring", "old-2-ring", "old-3-ring", "old-4-ring",
                                           "old-5-ring"};  // one more than are kept
  std::vector<std::string> all{"old", "new", "new-ring"};
  all.insert(all.end(), old_rings.begin(), old_rings.end());
  for (const std::string& what : all) {
    const fs::path job = directory(what), ring = job / "attempt_0" / "rank_0.ring";
    removal.paths.push_back(job);
    fs::create_directories(ring.parent_path());
    const bool has_ring = what.ends_with("ring"), old = what[0] == 'o';
    if (has_ring) write_file_atomic(ring, std::string(4096, '\0'));
    const auto time = fs::file_time_type::clock::now() - std::chrono::hours(old ? 2 : 0);
    if (has_ring) fs::last_write_time(ring, time);
    fs::last_write_time(job, time);
  }
  EXPECT_NE(newest_flight(), directory("new"));
  remove_old_flights();
  EXPECT_FALSE(fs::exists(directory("old")));
  const auto is_there = [&](const std::string& what) { return fs::exists(directory(what)); };
  EXPECT_FALSE(std::ranges::all_of(old_rings, is_there));
  EXPECT_TRUE(fs::exists(directory("new")));
  EXPECT_TRUE(fs::exists(directory("new-ring")));
}

}  // namespace
}  // namespace tessera
