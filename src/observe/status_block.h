#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "observe/reports.h"

namespace tessera {

// What a person at a terminal sees of a run.
struct RunView {
  int64_t step = 0, total_steps = 0;  // done
  int64_t ranks = 1;
  std::deque<double> losses;  // of the last steps
  std::optional<StepReport> last;
  std::optional<double> validation_loss;
  std::string doing;  // "training", "saving a checkpoint"
  double doing_seconds = 0;
};

// Three lines, none wider than `columns` characters: a bar with steps and time left; loss with a
// sparkline, rate and speed; what the run does or waits for.
std::vector<std::string> status_block(const RunView& view, int columns);

// Keeps those lines below the log of a terminal, for the window's width, twice a second and after
// every step, until it is destroyed.
class StatusBlock final : public MetricsSink {
 public:
  StatusBlock(int64_t first_step, int64_t total_steps, int64_t ranks);
  ~StatusBlock() override;
  // There are more or fewer than it was thought.
  void total_steps(int64_t steps);
  void doing(const std::string& what) override;
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;

 private:
  void show();
  void refresh();

  std::mutex mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  RunView view_;
  std::chrono::steady_clock::time_point doing_since_, shown_at_;
  std::thread thread_;
};

}  // namespace tessera
