#include "train/training_profile.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

// The steps that a rank has captured by nsys, as the programs do it from which the options are.
std::optional<CaptureWindow> capture_window(const RunConfig& config, int rank) {
  if (config.profile_nsys) return CaptureWindow{3, {}, "", ""};
  if (rank > 0) return std::nullopt;
  if (config.use_nsight)
    return CaptureWindow{10,
                         {},
                         "========= NSight profiling intiated at step 10 =========",
                         "========= NSight profiling stopped ========="};
  if (config.nsys_start_step)
    return CaptureWindow{*config.nsys_start_step, config.nsys_end_step,
                         "====== Start nsys profiling ======", "====== Stop nsys profiling ======"};
  return std::nullopt;
}

StepProfiler::Settings profiler_settings(const RunConfig& config, const Session& session) {
  StepProfiler::Settings settings;
  settings.schedule = {config.profiler_wait, config.profiler_warmup, config.profiler_active,
                       config.profiler_repeat};
  settings.directory = config.profile_dir;
  for (const Session::Program& program : session.compiled()) {
    if (program.name == "evaluate") continue;
    // Of a step's micro-batches all but the first and the last may be runs of one program.
    settings.programs.push_back(
        {{program.name, program.executable.get()},
         program.name == "accumulate" ? config.gradient_accumulation_steps : 1});
  }
  const Session::Memory memory = session.planned_memory();
  if (memory.far_state) return settings;
  settings.state = {{"parameters", memory.parameters},
                    {"compute weights", memory.compute_weights},
                    {"moments", memory.optimizer},
                    {"gradients", memory.gradients},
                    {"counters", memory.counters}};
  return settings;
}

std::vector<std::string> asked_profilers(const RunConfig& config) {
  std::vector<std::string> asked;
  if (config.use_profiler) asked.emplace_back("--use_profiler");
  if (config.use_nsight) asked.emplace_back("--use_nsight");
  if (config.profile_nsys) asked.emplace_back("--profile_nsys");
  if (config.nsys_start_step) asked.emplace_back("--nsys_start_step");
  return asked;
}

}  // namespace

void check_profiling(const RunConfig& config) {
  const std::vector<std::string> asked = asked_profilers(config);
  if (asked.size() > 1)
    throw UsageError(cat(join(asked, " and "), " are profilers of the same steps: give one"));
  if (config.nsys_end_step && !config.nsys_start_step)
    throw UsageError("--nsys_end_step needs --nsys_start_step");
  if (config.nsys_end_step && *config.nsys_end_step <= *config.nsys_start_step)
    throw UsageError(cat("--nsys_end_step ", *config.nsys_end_step,
                         " is to be behind --nsys_start_step ", *config.nsys_start_step));
  if (config.eval_only && !asked.empty())
    throw UsageError(cat(asked[0], " is about training steps, and --eval_only has none"));
}

TrainingProfile::TrainingProfile(const RunConfig& config, const Session& session,
                                 const std::string& run, int rank, int world_size, Control* control,
                                 std::function<SpeedOfLight()> measure_light)
    : max_steps_(config.max_steps) {
  if (const std::vector<std::string> asked = asked_profilers(config); !asked.empty()) {
    option_ = asked[0];
    tells_ = rank == 0;
  }
  if (config.use_profiler) {
    StepProfiler::Settings settings = profiler_settings(config, session);
    settings.run = run;
    settings.rank = rank;
    settings.world_size = world_size;
    settings.control = control;
    settings.measure_light = std::move(measure_light);
    first_ = settings.schedule.wait + settings.schedule.warmup;
    profiler_ = std::make_unique<StepProfiler>(std::move(settings));
  }
  if (const auto window = capture_window(config, rank)) {
    std::vector<ProfiledProgram> programs;
    for (const Session::Program& program : session.compiled())
      if (program.name != "evaluate") programs.push_back({program.name, program.executable.get()});
    first_ = window->first;
    end_ = window->end;
    capture_ = std::make_unique<NsysCapture>(*window, programs);
  }
}

void TrainingProfile::warn(const std::string& why) {
  if (tells_) TESSERA_WARN(cat(option_, ": no step is recorded, ", why));
  tells_ = false;
}

void TrainingProfile::look_ahead(int64_t number) {
  if (profiler_) first_ += number;
  if (end_ && number >= *end_)
    warn(cat("as this run begins with step ", number, ", behind --nsys_end_step ", *end_));
  else if (first_ >= max_steps_)
    warn(cat("as the first would be step ", first_, ", and the last of this run is ",
             max_steps_ - 1, " (--max_steps ", max_steps_, ")"));
}

void TrainingProfile::begin_step(int64_t number) {
  if (!std::exchange(begun_, true)) look_ahead(number);
  if (profiler_) profiler_->begin_step(number);
  if (capture_) capture_->begin_step(number);
}

void TrainingProfile::has_data() {
  if (profiler_) profiler_->has_data();
}

void TrainingProfile::end_step() {
  if (profiler_) profiler_->end_step();
  if (capture_) capture_->end_step();
}

void TrainingProfile::write() {
  if (profiler_) profiler_->write();
}

void TrainingProfile::finish() {
  if (profiler_) profiler_->finish();
  if (capture_) capture_->finish();
  if (!(profiler_ && profiler_->has_recorded()) && !(capture_ && capture_->has_captured()))
    warn(begun_ ? cat("as the run ended before step ", first_) : std::string("as there was none"));
}

}  // namespace tessera
