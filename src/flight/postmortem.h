#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "flight/ring_reader.h"

namespace tessera {

// What the rings of a job say together: how every rank is, and who waited for whom.

// How a rank ended, by those who started it. A ring does not have it where the process said
// nothing.
struct RankEnd {
  int status = 0, signal = 0;  // one of them
  bool asked = false;          // another had failed, and it was sent SIGTERM
  bool stopped = false;        // by SIGSTOP, when the job failed
  double time = 0;             // seconds since 1970
};

struct RankStory {
  int rank = 0;
  std::string state;     // "running", "stopped", "killed: ...", "failed: ...", "finished"
  bool gone = false;     // stopped, or ended without a word, or by a fatal signal
  bool gave_up = false;  // it ended itself, though not gone
  bool went_on = false;  // it may have been stopped until others gave up, and told its own end
  std::string now;       // the instruction that it is in, or what it does besides
  std::string program;
  int32_t layer = -1;
  int64_t now_since = 0;  // of its clock
  std::string last;       // the last instruction that was done
  std::string silent_in;  // where its longest pause was
  double silent_seconds = 0;
};

// An exchange which some ranks are in, or were when they gave up, and others have not come to.
struct PeerWait {
  std::string exchange;      // "all_gather in layers.3 (forward)", a tag
  std::string group;         // "shard (ranks 0-3)"; of a call of the control plane "all ranks"
  int64_t number = 0;        // of the exchanges of the group, from 1 on
  double since = 0;          // seconds since 1970, the first that came
  double seconds = 0;        // that this one has waited, or waited until it gave up
  bool failed = false;       // it gave up
  std::vector<int> ranks;    // who is in it
  std::vector<int> missing;  // who has not come, or is gone
  std::vector<int> unknown;  // whose rings are not here
};

struct Postmortem {
  const FlightDirectory* directory = nullptr;
  int world_size = 1;
  double now = 0;                // seconds since 1970
  std::vector<RankStory> ranks;  // as in the directory
  std::vector<int> absent;       // ranks without a ring, at most so many as are listed
  std::vector<PeerWait> waits;   // the oldest first
  std::vector<std::string> out_of_step;
  std::vector<int> culprits;  // for whom others wait and who wait for none of them
};

// The directory outlives it. `now`: seconds since 1970. `ends`: by rank, as far as they are known.
Postmortem postmortem_of(const FlightDirectory& directory, double now,
                         const std::map<int, RankEnd>& ends = {});

// The two or three lines that say most: who waited for whom in what, and where that one is.
std::vector<std::string> postmortem_lines(const Postmortem& postmortem);

// The native stacks that a rank's reports hold: of the last one, one text a thread, with names of
// functions as far as they are known here.
struct NativeStack {
  std::string thread;               // "exchanges"
  std::vector<std::string> frames;  // "run_exchange(...) in tessera"
};
struct NativeReport {
  std::string reason;
  std::vector<NativeStack> stacks;
};
// Of the text of a report file; any text.
NativeReport read_report(std::string_view text);
// Replaces what is a module and an offset by the name of the function, by addr2line where there is
// one; else they stay.
void name_frames(std::vector<NativeReport>& reports);

// A page of text; the same for programs.
std::string postmortem_text(const Postmortem& postmortem);
std::string postmortem_json(const Postmortem& postmortem);

// "in linear in layers.3.mlp (forward)", "waiting for ...", "before the first step"
std::string within(const std::string& place);
// "0-3,7"
std::string rank_list(const std::vector<int>& ranks);
// Inverse of ranks_text(), of ranks below `world_size`: "0-7", "0-56/8", "0,1,5". Empty where it is
// none.
std::vector<int> parse_ranks(std::string_view text, int world_size);

}  // namespace tessera
