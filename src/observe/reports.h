#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "observe/distribution.h"

namespace tessera {

// What one optimizer step has to tell.
struct StepReport {
  int64_t batch = 0;             // optimizer steps before this one, counted over the whole job
  double loss = 0;               // token mean
  std::optional<double> z_loss;  // token mean times --z_loss, no part of the loss; if there is one
  int64_t epoch = 1;             // of the first window, counted from 1
  int64_t samples = 0, tokens = 0;
  int64_t tokens_seen = 0;  // of the whole job, with this step
  double step_seconds = 0;  // from the first forward pass to the loss, waiting for data excluded
  double data_seconds = 0;
  std::optional<double>
      exchange_seconds;        // of step_seconds: waiting for other ranks; where that is known
  double elapsed_seconds = 0;  // since training began in this process: waits, saves, all of it
  std::optional<int64_t> batches_ready;  // that a stream had read ahead
  std::optional<uint64_t> data_hash;     // of what the step learns from, on all ranks; where asked
  double learning_rate = 0;              // that the update used
  double next_learning_rate = 0;         // of the step to come
  double gradient_norm = 0;
  std::optional<double> loss_scale;  // of this step; where there is one
  bool ok = true;                    // false: the update was skipped
  double flops = 0;                  // the model's own, on this rank
  double recomputed_flops = 0;       // on top: what was computed again to save memory
  double peak_flops = 0;             // matrix peak in FLOP/s, 0 if unknown
  int64_t memory_bytes = 0;          // resident now
  int64_t allocated_bytes = 0;       // state and arena, as planned
  double seconds_left = -1;          // < 0: unknown
};

// What so much in so many seconds is in one; 0 where there was no time.
inline double per_second(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

// Shares of the matrix peak, as the literature counts them: of the model's own arithmetic (MFU),
// and of all that was done, recomputation included (HFU). Nothing where the peak is not known, or
// is less than what was reached and so no peak.
inline std::optional<double> share_of_peak(double flops, const StepReport& report) {
  const double share = per_second(flops, report.step_seconds) / report.peak_flops;
  if (!(report.peak_flops > 0) || !(share <= 1)) return std::nullopt;
  return share;
}
inline std::optional<double> model_flops_utilization(const StepReport& report) {
  return share_of_peak(report.flops, report);
}
inline std::optional<double> hardware_flops_utilization(const StepReport& report) {
  return share_of_peak(report.flops + report.recomputed_flops, report);
}

// What one validation has to tell.
struct ValidationReport {
  int64_t batch = 0;  // of the last step before it
  int64_t epoch = 1;  // of the last window trained on
  int64_t tokens_seen = 0;
  double loss = 0, perplexity = 0;
};

// Memory of one rank at one point of a run, in bytes.
struct MemoryReport {
  int64_t step = 0;                                                // that were done
  bool in_step = false;                                            // while the next one is at work
  int64_t counted_to() const { return step + (in_step ? 1 : 0); }  // where steps done are counted
  std::string tag;                                                 // the point: "After forward"
  int rank = 0;
  std::string device;  // "cpu"
  // Of the device, by the plan: what lives now, at most since the report before, and what is taken
  // of the device for it.
  int64_t allocated = 0, peak_allocated = 0, reserved = 0;
  // Of the host, by the system: all tensors that are there, and the process's resident set, now,
  // less that of the report before, and of the first report.
  int64_t host_tensors = 0, resident = 0, resident_change = 0, first_resident = 0;
};

// How the values of each parameter are distributed behind a step, and L2 norms by layer.
struct ValuesReport {
  int64_t batch = 0;
  struct Values {
    std::string tag;  // "Weights/PARAMETER", "Gradients/PARAMETER"
    Distribution values;
  };
  std::vector<Values> parameters;
  std::vector<std::pair<std::string, double>> norms;  // "Norms/weights/layers.0"
};

// Of all ranks the one that took longest in a phase, over some steps.
struct StragglerReport {
  int64_t batch = 0, steps = 0;  // the last of those steps, and their number
  int rank = 0;
  std::string host, phase;                 // "compute", "data", "save"
  double seconds = 0, median_seconds = 0;  // of a step: that rank's, and of the others
  bool is_straggler = false;               // so much that it is to be warned about
};

// How a run ended.
struct EndReport {
  bool failed = false;
  double seconds = 0, training_seconds = 0;  // of this process; of its steps
  bool interrupted = false;
  std::string failure = {};  // what was wrong, where it failed
};

// Where a run tells of its steps and validations. What cannot be written is a warning, once, and
// never ends the run.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void step(const StepReport& report) = 0;
  virtual void validation(const ValidationReport& report) = 0;
  virtual void memory(const MemoryReport&) {}
  virtual void values(const ValuesReport&) {}
  virtual void stragglers(const StragglerReport&) {}
  // What the run does from here on, besides steps: "training", "saving a checkpoint".
  virtual void doing(const std::string&) {}
  // The run went back to where so many steps were done: those that come are done again.
  virtual void rewound(int64_t /*steps*/) {}
  virtual void end(const EndReport&) {}
};

}  // namespace tessera
