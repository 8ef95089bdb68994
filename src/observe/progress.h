#pragma once
#include <cstdint>
#include <optional>
#include <string>

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

// What one validation has to tell.
struct ValidationReport {
  int64_t batch = 0;  // of the last step before it
  int64_t epoch = 1;  // of the last window trained on
  int64_t tokens_seen = 0;
  double loss = 0, perplexity = 0;
};

// "Batch 12 Loss: 8.12345, Speed: 3.21 samples/sec, lr: 0.000100, gradnorm: 1.2345, Tokens/s: 822,
//  Peak: 31.0%, Memory: 1.2 GiB, Left: 3m05s"
// Everything up to lr is a fixed grammar that other programs read; fields may be appended. lr is
// the rate of the step to come, as in the programs whose grammar it is.
std::string progress_line(const StepReport& report);

// Mean speed from the 31st step of this process on, when the pace has settled.
class RunningAverage {
 public:
  explicit RunningAverage(int64_t every) : every_(every) {}
  // True when a line is due: every so many of the steps that count.
  bool add(const StepReport& report);
  // "Batch 130 Running Avg Speed: 3.21 samples/sec, Running Avg Model TFLOPS/GPU: 0.12"
  std::string line() const;

 private:
  int64_t every_, steps_ = 0, batch_ = 0, samples_ = 0;
  double seconds_ = 0, flops_ = 0;
};

// Appends JSON lines to a file, one object a step or validation, each with the time at which it was
// written (UTC, "2026-01-31T12:00:00.123Z"); the keys are in docs/metrics.md. When a line cannot be
// written (a full disk) the file keeps the lines that it has, and one warning says that no more
// will come.
class MetricsFile {
 public:
  explicit MetricsFile(
      const std::string& path);  // "": writes nothing. UserError if it cannot be opened
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void step(const StepReport& report);
  void validation(const ValidationReport& report);

 private:
  void write(int64_t batch, const std::string& rest);
  int fd_ = -1;  // < 0: nothing is written (any more)
  std::string path_;
};

}  // namespace tessera
