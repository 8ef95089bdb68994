#include "observe/status_block.h"

#include <algorithm>
#include <cmath>

#include "base/log_status.h"
#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::steady_clock;

// Quick steps are not shown one by one.
constexpr std::chrono::milliseconds kLeastTime{100};

constexpr int64_t kLeastSparkline = 12;
constexpr size_t kLosses = 240;  // that are kept for the sparkline: a wide window's

// The first so many characters of UTF-8 text.
std::string cut(const std::string& text, int columns) {
  size_t end = 0;
  for (int64_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && seen++ == columns) break;
  }
  return text.substr(0, end);
}

std::string times(std::string_view text, int64_t count) {
  std::string all;
  for (int64_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string bar(double share, int64_t columns) {
  const auto full =
      static_cast<int64_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns));
  return times("█", full) + times("░", columns - full);
}

// The last `columns` of the values, from the least to the largest of them.
std::string sparkline(const std::deque<double>& values, int64_t columns) {
  static constexpr std::string_view kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto count = std::min<int64_t>(columns, std::ssize(values));
  const auto first = values.end() - std::max<int64_t>(0, count);
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (auto v = first; v != values.end(); ++v) {
    if (!std::isfinite(*v)) continue;
    least = std::min(least, *v);
    most = std::max(most, *v);
  }
  std::string line;
  for (auto v = first; v != values.end(); ++v) {
    const double height = most > least ? (*v - least) / (most - least) : 0;
    line += std::isfinite(*v) ? kLevels[static_cast<size_t>(std::lround(height * 7))] : "!";
  }
  return line;
}

// As many as there is room for, in the order of what matters.
std::string numbers(const StepReport& r, int64_t columns) {
  std::vector<std::string> all{
      format("  lr %.3g", r.next_learning_rate),
      format("  %.0f tokens/s", per_second(static_cast<double>(r.tokens), r.step_seconds))};
  if (r.data_seconds > 0.05 * r.step_seconds)
    all.push_back(
        format("  data waits %.0f %%", 100 * r.data_seconds / (r.data_seconds + r.step_seconds)));
  if (const auto mfu = model_flops_utilization(r))
    all.push_back(format("  MFU %.1f %%", 100 * *mfu));
  if (r.memory_bytes > 0) all.push_back(cat("  ", format_bytes(r.memory_bytes)));
  std::string text;
  for (const std::string& fact : all)
    if (std::ssize(text) + std::ssize(fact) <= columns) text += fact;
  return text;
}

}  // namespace

std::vector<std::string> status_block(const RunView& view, int columns) {
  const double share = view.total_steps > 0
                           ? static_cast<double>(view.step) / static_cast<double>(view.total_steps)
                           : 0;
  std::string steps =
      format(" %3.0f %%  step %lld of %lld", std::floor(100 * share),
             static_cast<long long>(view.step), static_cast<long long>(view.total_steps));
  if (view.last && view.last->seconds_left >= 0 && view.step < view.total_steps)
    steps += cat("  ", format_duration(view.last->seconds_left), " left");
  std::vector<std::string> lines;
  lines.push_back(bar(share, std::clamp<int64_t>(columns - std::ssize(steps), 0, 60)) + steps);
  if (view.last) {
    const std::string loss = format("loss %.4f ", std::fabs(view.last->loss));
    const std::string behind = numbers(*view.last, columns - std::ssize(loss) - kLeastSparkline);
    const int64_t room = columns - std::ssize(loss) - std::ssize(behind);
    lines.push_back(loss + sparkline(view.losses, std::clamp<int64_t>(room, 0, 60)) + behind);
  } else {
    lines.push_back("no step is done yet");
  }
  std::string last = view.doing;
  if (view.doing_seconds >= 2) last += cat(" for ", format_duration(view.doing_seconds));
  if (view.ranks > 1) last += cat("  ", view.ranks, " ranks");
  if (view.validation_loss) last += format("  validation loss %.4f", *view.validation_loss);
  lines.push_back(last);
  for (std::string& line : lines) line = cut(line, columns);
  return lines;
}

StatusBlock::StatusBlock(int64_t first_step, int64_t total_steps, int64_t ranks) {
  view_.step = first_step;
  view_.total_steps = total_steps;
  view_.ranks = ranks;
  doing("training");
  thread_ = std::thread([this] { refresh(); });
}

StatusBlock::~StatusBlock() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  thread_.join();
  set_log_status({});
}

void StatusBlock::total_steps(int64_t steps) {
  std::lock_guard lock(mutex_);
  view_.total_steps = steps;
  show();
}

void StatusBlock::doing(const std::string& what) {
  std::lock_guard lock(mutex_);
  view_.doing = what;
  doing_since_ = steady_clock::now();
  show();
}

void StatusBlock::step(const StepReport& report) {
  std::lock_guard lock(mutex_);
  view_.step = report.batch + 1;
  view_.last = report;
  view_.losses.push_back(report.loss);
  if (view_.losses.size() > kLosses) view_.losses.pop_front();
  doing_since_ = steady_clock::now();
  if (doing_since_ - shown_at_ >= kLeastTime) show();
}

void StatusBlock::validation(const ValidationReport& report) {
  std::lock_guard lock(mutex_);
  view_.validation_loss = report.loss;
  show();
}

// One column stays free: some terminals begin a new line behind the last.
void StatusBlock::show() {
  shown_at_ = steady_clock::now();
  view_.doing_seconds = std::chrono::duration<double>(shown_at_ - doing_since_).count();
  set_log_status(status_block(view_, std::max(1, log_columns() - 1)));
}

void StatusBlock::refresh() {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, std::chrono::milliseconds(500), [&] { return ends_; })) show();
}

}  // namespace tessera
