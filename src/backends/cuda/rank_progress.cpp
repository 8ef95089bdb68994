#include "backends/cuda/rank_progress.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

// Every rank hears of every other, so less often the more there are; several times in a deadline.
std::chrono::milliseconds interval_of(int ranks, std::chrono::milliseconds deadline) {
  const std::chrono::milliseconds usual = std::chrono::milliseconds(1000) * std::max(1, ranks / 64);
  return std::clamp(deadline / 10, std::chrono::milliseconds(10), usual);
}

}  // namespace

RankProgress::RankProgress(Control& control, std::chrono::milliseconds deadline,
                           std::function<int64_t()> runs)
    : control_(control),
      interval_(interval_of(control.world_size(), deadline)),
      runs_(std::move(runs)) {
  thread_ = std::thread([this] { meet(); });
}

RankProgress::~RankProgress() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankProgress::meet() {
  try {
    for (bool last = false; !last;) {
      std::unique_lock lock(mutex_);
      last = changed_.wait_for(lock, interval_, [&] { return ends_; });
      lock.unlock();
      // The first letter says whether a rank ends: then this is the last time for all.
      const std::vector<std::string> all =
          control_.exchange("what GPUs have begun", cat(last ? "e" : "g", runs_()));
      std::vector<int64_t> told;
      for (const std::string& text : all) {
        last = last || text.starts_with('e');
        told.push_back(std::stoll(text.substr(1)));
      }
      lock.lock();
      told_ = std::move(told);
      told_at_ = Clock::now();
    }
  } catch (const CommError&) {
    // The job has failed; who waits for the device says so.
  }
}

std::optional<std::string> RankProgress::who_is_behind() const {
  std::lock_guard lock(mutex_);
  if (Clock::now() - told_at_ > 3 * interval_) return std::nullopt;
  const int64_t own = runs_();
  std::string ranks;
  int64_t least = own;
  for (const int64_t runs : told_) least = std::min(least, runs);
  if (least == own) return "no rank is behind";
  int behind = 0;
  for (size_t rank = 0; rank < told_.size(); ++rank) {
    if (told_[rank] != least) continue;
    ranks += cat(behind++ ? ", " : "", rank);
  }
  return cat(behind > 1 ? "ranks " : "rank ", ranks, behind > 1 ? " have" : " has", " started ",
             least, " runs of programs, this one ", own);
}

}  // namespace tessera::cuda
