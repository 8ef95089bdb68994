#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "observe/dashboard.h"
#include "observe/reports.h"
#include "runtime/control.h"

namespace tessera {

// What all ranks of a job do, for who looks at it: every rank has one, whose thread meets those of
// the others, in jobs of up to 64 ranks once a second, in larger ones less often. Steps never wait
// for it, and it goes on where a rank is busy with something else.
class RankWatch final : public MetricsSink {
 public:
  // What all say, by rank: to_json(RankState).
  using Tell = std::function<void(const std::vector<std::string>& states)>;
  // `control` null: a job of one rank. `tell` may be null: for who only says something.
  RankWatch(Control* control, Tell tell);
  ~RankWatch() override;
  void doing(const std::string& what) override;
  void step(const StepReport& report) override;
  void validation(const ValidationReport&) override {}
  // Where no rank has failed the threads end together.
  void end(const EndReport& report) override;

 private:
  void meet();

  Control* control_;
  Tell tell_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  RankState state_;
  double doing_since_ = 0;
  std::thread thread_;
};

}  // namespace tessera
