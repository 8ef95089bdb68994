#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::array<std::pair<DecayStyle, std::string_view>, 7> kStyles{{
    {DecayStyle::kConstant, "constant"},
    {DecayStyle::kLinear, "linear"},
    {DecayStyle::kCosine, "cosine"},
    {DecayStyle::kExponential, "exponential"},
    {DecayStyle::kPlateau, "plateau"},
    {DecayStyle::kFms, "fms"},
    {DecayStyle::kStep, "step"},
}};

void check_not_negative(const char* what, double value) {
  if (!(value >= 0) || std::isinf(value)) {
    throw UserError(
        cat("learning-rate schedule: ", what, " must be finite and not negative: it is ", value));
  }
}

void check_state(const ScheduleState& state) {
  check_not_negative("the learning rate", state.start_lr);
  check_not_negative("the minimum learning rate", state.min_lr);
  check_not_negative("the warm-up", state.warmup_iter);
  check_not_negative("the plateau", state.plateau);
  check_not_negative("the step factor", state.gamma);
  if (state.end_iter < 1) {
    throw UserError(
        cat("learning-rate schedule: the number of decay steps must be at least 1: it is ",
            state.end_iter));
  }
  if (state.warmup_iter > static_cast<double>(state.end_iter)) {
    throw UserError(cat("learning-rate schedule: a warm-up of ", state.warmup_iter,
                        " steps is longer than the ", state.end_iter, " decay steps"));
  }
}

}  // namespace

std::string_view name(DecayStyle style) {
  for (const auto& [value, text] : kStyles) {
    if (value == style) return text;
  }
  return "";
}

DecayStyle decay_style_from_name(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [value, known] : kStyles) {
    if (known == text) return value;
    names.emplace_back(known);
  }
  throw UserError(cat("decay style '", text, "' is not known; known are ", join(names, ", ")));
}

bool has_floor(DecayStyle style) { return style != DecayStyle::kFms && style != DecayStyle::kStep; }

Schedule::Schedule(const ScheduleOptions& options) {
  double steps = static_cast<double>(options.decay_steps);
  state_ = {.start_lr = options.lr,
            .min_lr = options.min_lr,
            .warmup_iter = options.warmup * steps,
            .num_iters = 0,
            .end_iter = options.decay_steps,
            .decay_style = options.style,
            .plateau = options.plateau,
            .gamma = options.gamma};
  if (options.style == DecayStyle::kFms) {
    state_.warmup_iter = static_cast<double>(std::min<int64_t>(2000, options.decay_steps / 20));
  }
  check_state(state_);
}

double Schedule::rate(int64_t completed_steps, int64_t epoch) const {
  double n = static_cast<double>(completed_steps);
  switch (state_.decay_style) {
    case DecayStyle::kFms: return fms_rate(n);
    case DecayStyle::kStep:
      return state_.start_lr * std::pow(state_.gamma, static_cast<double>(epoch - 1));
    default: return floored_rate(n);
  }
}

double Schedule::floored_rate(double n) const {
  double end = static_cast<double>(state_.end_iter), warmup = state_.warmup_iter;
  double lr = state_.start_lr;
  double capped = std::min(n, end - warmup);
  if (warmup > 0 && n <= warmup) return lr * capped / warmup;
  double m = capped - warmup;
  double rate = lr;
  switch (state_.decay_style) {
    case DecayStyle::kLinear: rate = lr * (end - m) / end; break;
    case DecayStyle::kCosine: rate = lr / 2.0 * (std::cos(std::numbers::pi * m / end) + 1.0); break;
    case DecayStyle::kExponential: rate = lr * std::exp(-0.693 * m / end); break;
    case DecayStyle::kPlateau: {
      double hold = warmup + state_.plateau * end;
      if (n > hold) rate = hold < end ? lr * (end - n) / (end - hold) : 0.0;
      break;
    }
    default: break;
  }
  return std::max(rate, state_.min_lr);
}

double Schedule::fms_rate(double n) const {
  double end = static_cast<double>(state_.end_iter), warmup = state_.warmup_iter;
  double cosine = 0.1 + 0.45 * (1.0 + std::cos(std::numbers::pi * std::min(n, end) / end));
  if (warmup == 0) return state_.start_lr * cosine;
  double left = 1.0 - std::min(n, warmup) / warmup;
  return state_.start_lr * std::min(1.0 - left * left, cosine);
}

std::vector<std::string> Schedule::warnings() const {
  const DecayStyle style = state_.decay_style;
  if (!has_floor(style)) return {};
  if (state_.min_lr > state_.start_lr)
    return {cat("--lr ", state_.start_lr, " is below --min_lr ", state_.min_lr,
                ": the rate goes up to that after the warm-up; give --min_lr")};
  const double end = static_cast<double>(state_.end_iter);
  if (floored_rate(end) > state_.start_lr)
    return {cat("so long a warm-up ends at ", format("%.3g", floored_rate(state_.warmup_iter)),
                ", and the rate then is ", format("%.3g", floored_rate(end)), ", above --lr ",
                state_.start_lr, ": give a --warmup of at most 0.5")};
  const bool falls = style == DecayStyle::kCosine || style == DecayStyle::kLinear;
  if (falls && state_.warmup_iter > end / 4 && floored_rate(end) > 2 * state_.min_lr)
    return {cat("after so long a warm-up the rate ends at ", format("%.3g", floored_rate(end)),
                ", far above --min_lr ", state_.min_lr, ": give a --warmup below ",
                format("%.2g", state_.warmup_iter / end))};
  return {};
}

ScheduleState Schedule::state(int64_t completed_steps) const {
  ScheduleState state = state_;
  state.num_iters = completed_steps;
  return state;
}

std::vector<std::string> Schedule::resume(const ScheduleState& saved) {
  check_state(saved);
  state_ = saved;
  auto line = [](const auto& value, const char* what) {
    return cat(" > using checkpoint value ", value, " for ", what);
  };
  std::vector<std::string> lines{line(saved.start_lr, "learning rate")};
  if (has_floor(saved.decay_style)) {
    lines.push_back(line(saved.min_lr, "minimum learning rate"));
    lines.push_back(line(saved.warmup_iter, "warmup iterations"));
  }
  lines.push_back(line(saved.end_iter, "total number of iterations"));
  lines.push_back(line(name(saved.decay_style), "decay style"));
  if (saved.decay_style == DecayStyle::kPlateau) lines.push_back(line(saved.plateau, "plateau"));
  if (saved.decay_style == DecayStyle::kStep) lines.push_back(line(saved.gamma, "step factor"));
  return lines;
}

}  // namespace tessera
