#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/control.h"

namespace tessera::cuda {

// How far every rank of a job has got, told by a thread of each beside their exchanges: of a rank
// that waits for others on its GPU nothing else says whom it waits for.
class RankProgress {
 public:
  // `runs`: of programs that this rank has started by now; any thread may ask. All ranks make
  // theirs at the same time; `control` must live longer.
  RankProgress(Control& control, std::chrono::milliseconds deadline, std::function<int64_t()> runs);
  // Comes to an end together with those of the other ranks, or when the job has failed.
  ~RankProgress();
  RankProgress(const RankProgress&) = delete;
  RankProgress& operator=(const RankProgress&) = delete;

  // Who has not started what this rank waits in: "rank 3 has started 40 runs of its programs, this
  // one 41"; "no rank is behind" if nobody. None while a rank does not tell: then the job's control
  // is about to name it.
  std::optional<std::string> who_is_behind() const;
  // For so long after the deadline of a wait a rank that does not tell may still be named: it is
  // asked for a little later than others wait for it, and the control plane hears others first.
  std::chrono::milliseconds patience() const {
    return 4 * interval_ + std::chrono::milliseconds(3000);
  }

 private:
  using Clock = std::chrono::steady_clock;
  void meet();

  Control& control_;
  std::chrono::milliseconds interval_;
  std::function<int64_t()> runs_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::vector<int64_t> told_;  // by rank
  Clock::time_point told_at_ = Clock::now();
  std::thread thread_;
};

}  // namespace tessera::cuda
