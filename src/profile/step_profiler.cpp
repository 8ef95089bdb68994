#include "profile/step_profiler.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

// Of a trace: 256 MiB of times. What comes behind them is counted.
constexpr size_t kMostInstructions = size_t{1} << 24;

}  // namespace

StepProfiler::StepProfiler(Settings settings) : settings_(std::move(settings)) {
  make_directories(settings_.directory);
  for (const Settings::Program& p : settings_.programs) {
    if (!p.program.executable->add_listener(recorder_))
      throw UserError(
          "--use_profiler: this device does not tell when it runs what: leave it out; NVIDIA's "
          "nsys "
          "takes the times of a run on a GPU that has --profile_nsys 1");
    p.program.executable->remove_listener(recorder_);
    programs_.push_back(p.program);
  }
}

StepProfiler::~StepProfiler() { listen(false); }

std::filesystem::path StepProfiler::trace_path(const std::filesystem::path& directory, int rank,
                                               int64_t first_step) {
  return directory / cat("rank", rank, ".", first_step, ".pt.trace.json");
}

void StepProfiler::listen(bool on) {
  if (listens_ == on) return;
  if (on) {
    if (!light_) light_ = settings_.measure_light ? settings_.measure_light() : SpeedOfLight{};
    size_t instructions = 0, runs = 0;
    for (const Settings::Program& p : settings_.programs) {
      const Plan* plan = p.program.executable->plan();
      instructions += static_cast<size_t>(p.runs) * (plan ? plan->instructions.size() : 1);
      runs += static_cast<size_t>(p.runs);
    }
    const auto steps =
        static_cast<size_t>(std::max(settings_.schedule.warmup, settings_.schedule.active));
    recorder_ = RunRecorder(std::min(steps * instructions, kMostInstructions),
                            std::min(steps * runs, kMostInstructions));
  }
  for (const ProfiledProgram& program : programs_) {
    program.executable->remove_listener(recorder_);
    if (on) program.executable->add_listener(recorder_);
  }
  listens_ = on;
}

void StepProfiler::align() {
  if (settings_.control) clock_.push_back(align_clock(*settings_.control));
}

void StepProfiler::begin_step(int64_t number) {
  now_ = settings_.schedule.at(step_++);
  listen(now_.part != ProfileSchedule::Part::kOff);
  recorder_.hear(true);
  if (now_.part != ProfileSchedule::Part::kActive) return;
  if (now_.first) {
    recorder_.clear();
    steps_.clear();
    clock_.clear();
    align();
  }
  const int64_t begin = monotonic_nanoseconds();
  steps_.push_back({number, begin, begin, begin});
}

void StepProfiler::has_data() {
  if (now_.part == ProfileSchedule::Part::kActive) steps_.back().computes = monotonic_nanoseconds();
}

void StepProfiler::end_step() {
  recorder_.hear(false);
  if (now_.part == ProfileSchedule::Part::kActive) steps_.back().end = monotonic_nanoseconds();
}

bool StepProfiler::is_recording() const {
  constexpr auto kOff = ProfileSchedule::Part::kOff;
  return now_.part != kOff || settings_.schedule.at(step_).part != kOff;
}

void StepProfiler::finish() {
  // A step for which there was no data was none.
  if (!steps_.empty() && steps_.back().end <= steps_.back().computes) steps_.pop_back();
  if (!steps_.empty()) write();
  listen(false);
}

void StepProfiler::write() {
  has_recorded_ = true;
  align();
  const std::filesystem::path path =
      trace_path(settings_.directory, settings_.rank, steps_.front().number);
  try {
    write_trace(path, {.rank = settings_.rank,
                       .world_size = settings_.world_size,
                       .host = host_name(),
                       .run = settings_.run,
                       .programs = programs_,
                       .steps = steps_,
                       .recorder = &recorder_,
                       .light = *light_,
                       .state = settings_.state,
                       .clock = clock_});
    TESSERA_INFO(cat("Trace of steps ", steps_.front().number, " to ", steps_.back().number,
                     " written to ", path.string()));
  } catch (const UserError& error) {
    TESSERA_WARN(cat(error.what(), "; the run goes on without this trace"));
  }
  steps_.clear();
  recorder_.clear();
}

}  // namespace tessera
