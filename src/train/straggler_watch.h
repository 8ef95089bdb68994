#pragma once
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "observe/reports.h"
#include "runtime/control.h"

namespace tessera {

// Seconds that a rank has spent, waiting for other ranks left out: that says of the others.
struct PhaseSeconds {
  double compute = 0, data = 0, save = 0;
  int64_t steps = 0;
  double step_seconds = 0;  // of all of them, waits included
};

// Of ranks that stood side by side for some steps the one that took longest beside the median of
// the others, in the phase in which that is most; a straggler where it took `threshold` times as
// long and 5 % of a step more, at least a millisecond. None of one rank.
std::optional<StragglerReport> slowest_rank(const std::vector<PhaseSeconds>& ranks,
                                            const std::vector<std::string>& hosts,
                                            double threshold);

// Compares the times of all ranks every so many steps, beside the steps.
class StragglerWatch {
 public:
  StragglerWatch(Control& control, int64_t interval, double threshold);

  // Every rank, after each of its steps, with how long it waited for its own data. Returns what
  // came of the last comparison, once, where it is done or another one begins.
  std::optional<StragglerReport> add(const StepReport& step, double data_seconds);
  void add_saving(double seconds) { own_.save += seconds; }
  // Every rank, after its last step: waits for the last comparison.
  std::optional<StragglerReport> finish() { return take(true); }

 private:
  std::optional<StragglerReport> take(bool wait);

  Control& control_;
  int64_t interval_;
  double threshold_;
  PhaseSeconds own_;
  int64_t batch_ = 0;  // of the last step
  std::future<StragglerReport> comparing_;
};

}  // namespace tessera
