#pragma once
#include <memory>
#include <optional>
#include <string>

#include "options/run_config.h"
#include "profile/nsys_capture.h"
#include "profile/step_profiler.h"
#include "programs/session.h"

namespace tessera {

// UsageError for options of profiling that contradict each other, or of which one is missing.
void check_profiling(const RunConfig& config);

// What records the steps of a run, if anything: the profiler, or a capture by nsys.
class TrainingProfile {
 public:
  TrainingProfile() = default;
  // `run`: its identity, for traces.
  TrainingProfile(const RunConfig& config, const Session& session, const std::string& run, int rank,
                  int world_size, Control* control, std::function<SpeedOfLight()> measure_light);

  // Around every step.
  void begin_step(int64_t number);
  void has_data();
  void end_step();
  // This step or the next one is recorded, so that nothing runs ahead of it.
  bool is_recording() const { return profiler_ && profiler_->is_recording(); }
  // Behind a step: a trace is to be written before the next one begins.
  bool is_full() const { return profiler_ && profiler_->is_full(); }
  void write();
  // The last step is done.
  void finish();

 private:
  // Of a run whose first step is `number`: says so where no step of it will be recorded.
  void look_ahead(int64_t number);
  void warn(const std::string& why);

  std::unique_ptr<StepProfiler> profiler_;
  std::unique_ptr<NsysCapture> capture_;
  std::string option_;  // that asks for it
  // The first step that is recorded (of the profiler: behind so many of this process), and the
  // first one that is not any more.
  int64_t first_ = 0;
  std::optional<int64_t> end_;
  int64_t max_steps_ = 0;
  bool begun_ = false, tells_ = false;
};

}  // namespace tessera
