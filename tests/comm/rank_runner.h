#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/channels.h"
#include "comm/job.h"

namespace tessera {

// It follows threads but not forked processes.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Where ranks, threads or forked processes, wait for each other beside the channels under test:
// those end a barrier of their own one after the other.
class MeetingPoint {
 public:
  // Of so many arrivals.
  explicit MeetingPoint(int ranks);
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;
  ~MeetingPoint();

  void arrive() const { ++std::atomic_ref<int>(*arrived_); }
  // Returns when all have arrived; fails the rank where they do not within the time of a test.
  void wait() const;
  void arrive_and_wait() const {
    arrive();
    wait();
  }

 private:
  int ranks_;
  int* arrived_;  // in memory that forked processes share
};

// Arrives at the end of its scope, be it by an error.
class ArrivesAtEnd {
 public:
  explicit ArrivesAtEnd(const MeetingPoint& point) : point_(point) {}
  ArrivesAtEnd(const ArrivesAtEnd&) = delete;
  ArrivesAtEnd& operator=(const ArrivesAtEnd&) = delete;
  ~ArrivesAtEnd() { point_.arrive(); }

 private:
  const MeetingPoint& point_;
};

// How ranks are made and what connects them.
enum class Way { kThreads, kStagedThreads, kSharedMemory, kGloo, kMix };
std::string name(Way way);
inline bool is_processes(Way way) { return way >= Way::kSharedMemory; }

struct RankJob {
  Way way = Way::kThreads;
  int world = 2;
  std::chrono::milliseconds deadline{30'000};
  // Changes a process's idea of the job before it connects.
  std::function<void(JobMember&)> prepare;
  // Ranks that never start.
  std::vector<int> absent;
};

struct RankResult {
  std::string error;   // what the body (or connecting) threw; empty: nothing
  int signal = 0;      // that ended or stopped the process
  double seconds = 0;  // from the start of all to the end of this one
};

// Runs `body` on every rank, each on a thread or in a forked process of its own, and returns when
// all have ended. They connect when all are there: deadlines say nothing of how soon a process or
// thread begins. A process that stops itself is killed once the others have ended.
std::vector<RankResult> run_ranks(const RankJob& job, const std::function<void(Channels&)>& body);
std::vector<RankResult> run_ranks(const RankJob& job,
                                  const std::function<void(Communicator&)>& body);

// A sum over all ranks of one number: a barrier in the order of the collectives.
void sum_of_ones(Communicator& communicator, std::string_view label);

// Fails the rank: assertions of the test library do not leave a forked process.
void require(bool condition, const std::string& what);

}  // namespace tessera
