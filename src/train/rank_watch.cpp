#include "train/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/process_identity.h"

namespace tessera {
namespace {

// Every rank hears of every other: so many more messages the more there are.
std::chrono::milliseconds interval(int ranks) {
  return std::chrono::milliseconds(1000) * std::max(1, ranks / 64);
}

}  // namespace

RankWatch::RankWatch(Control* control, Tell tell)
    : control_(control), tell_(std::move(tell)), doing_since_(monotonic_seconds()) {
  state_.rank = control ? control->rank() : 0;
  state_.host = host_name();
  state_.process = ::getpid();
  state_.doing = "starting";
  thread_ = std::thread([this] { meet(); });
}

RankWatch::~RankWatch() {
  end({});
  if (thread_.joinable()) thread_.join();
}

void RankWatch::doing(const std::string& what) {
  std::lock_guard lock(mutex_);
  state_.doing = what;
  doing_since_ = monotonic_seconds();
}

void RankWatch::step(const StepReport& report) {
  std::lock_guard lock(mutex_);
  state_.last = report;
}

void RankWatch::end(const EndReport& report) {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  // After a failure the others may never come: then the job's control ends the call, later.
  if (!report.failed && thread_.joinable()) thread_.join();
}

void RankWatch::meet() {
  const auto wait = interval(control_ ? control_->world_size() : 1);
  try {
    for (bool last = false; !last;) {
      std::unique_lock lock(mutex_);
      last = changed_.wait_for(lock, wait, [&] { return ends_; });
      state_.doing_seconds = monotonic_seconds() - doing_since_;
      // The first letter says whether a rank ends: then this is the last time for all.
      const std::string mine = (last ? "e" : "g") + to_json(state_);
      lock.unlock();
      std::vector<std::string> all =
          control_ ? control_->exchange("what ranks do", mine) : std::vector{mine};
      for (std::string& text : all) {
        last = last || text.starts_with('e');
        text.erase(0, 1);
      }
      if (tell_) tell_(all);
    }
  } catch (const CommError&) {
    // The job has failed; whoever trains says so.
  }
}

}  // namespace tessera
