#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "profile/trace_reader.h"

namespace tessera {

// Seconds are those of a step of a rank on average, shares those of its time.
struct ProfileRow {
  std::string name, phase;  // phase: of ops only
  double calls = 0, seconds = 0, share = 0;
  double flops = 0, bytes = 0;  // of a step, too
  double light = -1;            // share of the speed of light; < 0: nothing is known
};

struct RankRow {
  int64_t rank = 0;
  std::string host;
  // step = computing + waiting + data + other; exchanges run beside.
  double step = 0, computing = 0, waiting = 0, data = 0, other = 0, exchanging = 0;
  std::map<int64_t, double> waited_for;  // seconds that a later rank made it wait
  double kept_waiting = 0;               // that all others waited for it
};

struct ExchangeRow {
  std::string op, axes;
  double calls = 0, bytes = 0, seconds = 0;  // seconds: while it runs
  double waiting = 0;                        // while compute waits for it
};

struct ProfileReport {
  int64_t ranks = 0, world_size = 1, steps = 0, first_step = 0, last_step = 0;
  int64_t lost = 0;  // instructions that were not recorded
  double step_seconds = 0, clock_error = 0;
  std::vector<ProfileRow> by_op, by_layer, by_phase;  // longest first; layers in order
  std::vector<RankRow> by_rank;
  std::vector<ExchangeRow> exchanges;
  std::vector<LiveBuffer> state;
  TracePeak peak;  // the program that takes the most, of the first rank
};

ProfileReport profile_report(std::span<const RankTrace> traces);

// Tables; of ops the `most` that take longest.
std::string report_text(const ProfileReport& report, size_t most);
std::string report_json(const ProfileReport& report);

// What another run did differently, by phase and by op: the largest differences first.
std::string diff_text(const ProfileReport& a, const ProfileReport& b, size_t most);
std::string diff_json(const ProfileReport& a, const ProfileReport& b);

}  // namespace tessera
