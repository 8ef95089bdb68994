#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profile/profile_schedule.h"
#include "profile/trace_writer.h"
#include "runtime/control.h"

namespace tessera {

// The profiler of a training run: records steps by its schedule, of which a trace of this rank is
// written behind the last active step of every cycle. Programs that run between steps are not
// recorded; while it waits nobody listens to them at all.
class StepProfiler {
 public:
  struct Settings {
    ProfileSchedule schedule;
    std::filesystem::path directory;  // made where it is missing
    int rank = 0, world_size = 1;
    std::string run;             // its identity
    Control* control = nullptr;  // to the other ranks, whose clocks are compared; none: one rank
    struct Program {
      ProfiledProgram program;
      int64_t runs = 1;  // in a step at most
    };
    std::vector<Program> programs;
    std::vector<LiveBuffer> state;
    std::function<SpeedOfLight()> measure_light;  // called once, before the first warm-up
  };
  explicit StepProfiler(Settings settings);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // Around every step, on all ranks. `number`: as in the progress line.
  void begin_step(int64_t number);
  void has_data();
  void end_step();
  // Whether this step or the next one is recorded. A device is waited for then: the step before has
  // to be told first, or it would seem to have taken as long as both.
  bool is_recording() const;
  // Behind a step: whether it was the last of a cycle, which is to be written before the next one
  // begins. That takes a while: outside of what is measured of a step.
  bool is_full() const { return now_.last && !steps_.empty(); }
  void write();
  // The run ends: steps of a cycle that is not over are written.
  void finish();
  // Whether there was an active step.
  bool has_recorded() const { return has_recorded_; }

  // "DIR/rank3.17.pt.trace.json": rank 3, from step 17 on.
  static std::filesystem::path trace_path(const std::filesystem::path& directory, int rank,
                                          int64_t first_step);

 private:
  void listen(bool on);
  void align();

  Settings settings_;
  std::vector<ProfiledProgram> programs_;
  std::optional<SpeedOfLight> light_;
  RunRecorder recorder_;
  int64_t step_ = 0;  // of this process
  ProfileSchedule::Moment now_;
  bool listens_ = false, has_recorded_ = false;
  std::vector<ProfiledStep> steps_;
  std::vector<ClockOffset> clock_;
};

}  // namespace tessera
