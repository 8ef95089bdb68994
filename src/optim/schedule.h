#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// kFms is the curve of fms-fsdp (quadratic warm-up, cosine to 10 %); kStep multiplies after every
// epoch.
enum class DecayStyle { kConstant, kLinear, kCosine, kExponential, kPlateau, kFms, kStep };

// "constant", "linear", "cosine", "exponential", "plateau", "fms", "step".
std::string_view name(DecayStyle style);
// Inverse of name(); UserError that lists the names for another word.
DecayStyle decay_style_from_name(std::string_view text);

// Whether a minimum learning rate and a warm-up of the user's own are part of the curve.
bool has_floor(DecayStyle style);

// What a checkpoint keeps of a schedule. Iterations are optimizer steps; warmup_iter is not
// rounded.
struct ScheduleState {
  double start_lr = 0;  // peak
  double min_lr = 0;    // floor after the warm-up; not used by kFms and kStep
  double warmup_iter = 0;
  int64_t num_iters = 0;  // completed steps when the checkpoint was written
  int64_t end_iter = 0;   // N
  DecayStyle decay_style = DecayStyle::kCosine;
  // Among the options of a record.
  double plateau = 0;  // fraction of N, kPlateau only
  double gamma = 0.1;  // kStep only
  bool operator==(const ScheduleState&) const = default;
};

struct ScheduleOptions {
  DecayStyle style = DecayStyle::kCosine;
  double lr = 1e-4;
  double min_lr = 1e-5;
  int64_t decay_steps = 5000;  // N: --lr_decay_iters, or else --max_steps
  double warmup = 0.0032;      // fraction of N
  double plateau = 0.0;        // fraction of N, kPlateau only
  double gamma = 0.1;          // kStep only
};

// The learning rate as a function of the completed steps; nothing accumulates. In double precision,
// with w = warmup N, p = w + plateau N and n' = min(n, N - w):
//   0 < w and n <= w: lr n' / w, without the floor; so the first optimizer step (n = 0) runs at
//   rate 0. else, with m = n' - w, the maximum of min_lr and
//     constant lr;  linear lr (N - m) / N;  cosine lr (cos(pi m / N) + 1) / 2;
//     exponential lr exp(-0.693 m / N);  plateau lr if n <= p, else lr (N - n) / (N - p).
//   fms, with w = min(2000, N div 20), x = min(n, N):
//     lr min(1 - (1 - min(n, w) / w)^2, 0.1 + 0.45 (1 + cos(pi x / N)));  w = 0: no warm-up.
//   step: lr gamma^(epoch - 1), epochs counted from 1.
class Schedule {
 public:
  // UserError unless decay_steps >= 1, 0 <= warmup <= 1, 0 <= plateau, and rates and gamma are
  // finite and not negative.
  explicit Schedule(const ScheduleOptions& options);

  // The rate of the optimizer step that follows `completed_steps` steps. The progress line of batch
  // k shows rate(k + 1), the rate of the next step.
  double rate(int64_t completed_steps, int64_t epoch = 1) const;

  // Where its curve is another one than --min_lr leads one to expect.
  std::vector<std::string> warnings() const;

  ScheduleState state(int64_t completed_steps) const;

  // Takes the values of a checkpoint in place of its own and returns a line for each:
  // " > using checkpoint value {v} for {learning rate | minimum learning rate | warmup iterations |
  // total number of iterations | decay style | plateau | step factor}", those that the style
  // has. UserError when the values are not those of a schedule.
  std::vector<std::string> resume(const ScheduleState& saved);

 private:
  double floored_rate(double n) const;
  double fms_rate(double n) const;

  ScheduleState state_;
};

}  // namespace tessera
