#pragma once
#include <cstdint>
#include <optional>

namespace tessera {

// What one optimizer step has to tell.
struct StepReport {
  int64_t batch = 0;             // optimizer steps before this one, counted over the whole job
  double loss = 0;               // token mean
  std::optional<double> z_loss;  // token mean, not part of the loss; where there is one
  int64_t epoch = 1;             // of the first window, counted from 1
  int64_t samples = 0, tokens = 0;
  int64_t tokens_seen = 0;  // of the whole job, with this step
  double step_seconds = 0;  // from the first forward pass to the loss, waiting for data excluded
  double data_seconds = 0;
  std::optional<int64_t> batches_ready;  // that a stream had read ahead
  std::optional<uint64_t> data_hash;     // of what the step learns from, on all ranks; where asked
  double learning_rate = 0;              // that the update used
  double next_learning_rate = 0;         // of the step to come
  double gradient_norm = 0;
  std::optional<double> loss_scale;  // of this step; where there is one
  bool ok = true;                    // false: the update was skipped
  double flops = 0;                  // of the step's programs
  double peak_flops = 0;             // matrix peak in FLOP/s, 0 if unknown
  int64_t memory_bytes = 0;          // resident now
  double seconds_left = -1;          // < 0: unknown
};

// What so much in so many seconds is in one; 0 where there was no time.
inline double per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

// What one validation has to tell.
struct ValidationReport {
  int64_t batch = 0;  // of the last step before it
  int64_t epoch = 1;  // of the last window trained on
  int64_t tokens_seen = 0;
  double loss = 0, perplexity = 0;
};

// Where a run tells of its steps and validations. What cannot be written is a warning, once, and
// never ends the run.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void step(const StepReport& report) = 0;
  virtual void validation(const ValidationReport& report) = 0;
};

}  // namespace tessera
