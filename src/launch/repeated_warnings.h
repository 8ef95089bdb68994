#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Ranks that notice the same say the same. Of the warnings of a node's workers (lines of the log at
// level W) equal ones come out as one line, of the rank that was first: a moment later, with a
// count of the ranks; those that follow within a minute are counted, and said with the next.
class RepeatedWarnings {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // What this rank has said waits no longer: it says an error next.
  void release(int rank, TimePoint now);
  // Whether the line is a warning that was taken, to come out of due() or not at all.
  bool take(int rank, std::string_view line, TimePoint now);
  // Lines, marked with their ranks, whose time has come, the oldest first; `all`: those that wait
  // for it, too.
  std::vector<std::string> due(TimePoint now, bool all = false);
  // When to ask for the next; TimePoint::max() where none waits.
  TimePoint next() const;

 private:
  struct Warning {
    int rank = 0;
    std::string line;     // the first one
    std::set<int> ranks;  // that said it since it came out last
    int times = 0;        // likewise
    bool shown = false;   // before
    TimePoint due;
    int64_t number = 0;  // in the order of `line`
  };
  std::map<std::string, Warning, std::less<>> warnings_;  // by what a line says
  int64_t count_ = 0;
};

}  // namespace tessera
