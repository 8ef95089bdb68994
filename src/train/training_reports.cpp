// What a training run tells of itself: to its log, and to the sinks that the options name.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/line_writer.h"
#include "base/log.h"
#include "base/log_status.h"
#include "observe/memory_lines.h"
#include "observe/metrics_file.h"
#include "observe/nccl_test_log.h"
#include "observe/status_server.h"
#include "observe/tensorboard.h"
#include "observe/wandb_run.h"
#include "options/option_record.h"
#include "plot/run_metrics.h"
#include "programs/frozen_parameters.h"
#include "programs/gradient_program.h"
#include "programs/step_costs.h"
#include "train/training_run.h"

namespace tessera {
namespace {

// Steps of a process of which --enable_memory_profiling tells.
constexpr int64_t kTrackedSteps = 5;

}  // namespace

void TrainingRun::serve_status() {
  if (!config_.http_port || !device_.first_on_host) return;
  const HttpServer::Options options{config_.http_address, static_cast<int>(*config_.http_port)};
  auto server =
      std::make_unique<StatusServer>(options, rank(), std::string(name(record_.model.model_type)));
  // Nobody knows a port otherwise that was not asked for.
  if (server->port() > 0)
    log_line(LogLevel::kInfo, __FILE__, __LINE__,
             cat("Serving /metrics, /healthz and /readyz at ", config_.http_address, " port ",
                 server->port()),
             options.port == 0);
  sinks_.push_back(std::move(server));
}

void TrainingRun::open_dashboard() {
  if (!config_.dashboard) return;
  RankWatch::Tell tell;
  if (rank() == 0) {
    const ModelConfig& model = record_.model;
    DashboardFacts facts{{"parameters", format_count(static_cast<double>(record_.parameter_count))},
                         {"ranks", cat(world_size())},
                         {"on", device_.description}};
    if (!config_.checkpoint_dir.empty())
      facts.emplace_back("checkpoints", join(config_.checkpoint_dir, ", "));
    auto dashboard = std::make_unique<Dashboard>(
        HttpServer::Options{config_.dashboard_address, static_cast<int>(*config_.dashboard)},
        config_.model_name.empty() ? std::string(name(model.model_type)) : config_.model_name,
        std::move(facts));
    dashboard_ = dashboard.get();
    sinks_.push_back(std::move(dashboard));
    tell = [to = dashboard_](const std::vector<std::string>& states) { to->ranks(states); };
  }
  sinks_.push_back(std::make_unique<RankWatch>(device_.control, std::move(tell)));
}

// What is known once there is a state: its memory, and what the steps before it were like.
void TrainingRun::fill_dashboard() {
  if (!dashboard_) return;
  const Session::Memory memory = session_->planned_memory();
  std::vector<std::pair<std::string, int64_t>> parts{{"parameters", memory.parameters},
                                                     {"compute weights", memory.compute_weights},
                                                     {"moments", memory.optimizer},
                                                     {"gradients", memory.gradients},
                                                     {"arena", memory.arena}};
  if (memory.far_arena > 0) parts.emplace_back("far arena", memory.far_arena);
  dashboard_->planned_memory(std::move(parts));
  std::error_code unknown;  // what is wrong with the file is said where it is opened to be written
  if (record_.step == 0 || !std::filesystem::exists(config_.metrics_file, unknown)) return;
  const std::string keys[] = {"loss", "learning_rate", "gradient_norm", "tokens_per_second",
                              "validation_loss"};
  try {
    const RunMetrics metrics(ReadFile(config_.metrics_file), keys);
    const auto done = static_cast<double>(record_.step);
    std::array<Series, std::size(keys)> all;
    for (size_t k = 0; k < all.size(); ++k) all[k] = metrics.series(keys[k]);
    const std::vector<double>& steps = all[0].steps;
    for (size_t k = 1; k < 4; ++k)
      if (all[k].steps != steps) throw UserError(cat("some steps have no ", keys[k]));
    for (size_t i = 0; i < steps.size() && steps[i] <= done; ++i)
      dashboard_->earlier_step(steps[i], all[0].values[i], all[1].values[i], all[2].values[i],
                               all[3].values[i]);
    for (size_t i = 0; i < all[4].steps.size() && all[4].steps[i] <= done; ++i)
      dashboard_->earlier_validation(all[4].steps[i], all[4].values[i]);
  } catch (const UserError& error) {
    TESSERA_WARN(cat("The dashboard begins with this step: ", error.what()));
  }
}

void TrainingRun::open_sinks() {
  if (rank() > 0) return;
  // What cannot be made is an error of who gave the option, as long as nothing was trained yet.
  auto open = [this](const auto& make) {
    try {
      sinks_.push_back(make());
    } catch (const UserError& error) {
      if (device_.attempt == 0) throw;
      TESSERA_WARN(cat(error.what(), "; training goes on without"));
    }
  };
  if (!config_.metrics_file.empty())
    open([&] { return std::make_unique<MetricsFile>(config_.metrics_file); });
  const std::string& test = config_.nccl_test_log;
  if (!test.empty() && config_.tensorboard_dir.empty())
    TESSERA_WARN("--nccl_test_log goes to TensorBoard: it is not read without --tensorboard_dir");
  for (const std::string& directory : config_.tensorboard_dir) {
    TESSERA_INFO(cat("Writing metrics for tensorboard to ", directory, "."));
    open([&] {
      auto writer = std::make_unique<TensorBoardWriter>(directory, record_.step);
      if (!config_.eval_only) writer->rewound(record_.step);  // that does no step again
      writer->arguments(option_values(config_));
      if (!test.empty()) writer->network_test(average_bus_bandwidths(read_file(test), test));
      return writer;
    });
  }
  if (config_.use_wandb) {
    open([&] {
      return std::make_unique<WandbRun>(".", option_values(config_), record_.step, world_size());
    });
  }
  sinks_are_open_ = true;
  for (const MemoryReport& report : std::exchange(early_memory_, {}))
    for (const auto& sink : sinks_) sink->memory(report);
  if (config_.report_interval) report_.emplace(*config_.report_interval, world_size());
}

// So that nobody has to guess what a share was a share of.
void TrainingRun::tell_formulas() {
  const Programs& programs = session_->programs();
  flops_per_micro_batch_ = program_flops(programs.accumulate_first);
  recomputed_per_micro_batch_ = recomputed_flops(programs.accumulate_first);
  if (rank() > 0) return;
  const double tokens = static_cast<double>(config_.train_batch_size * config_.max_context_width) /
                        static_cast<double>(config_.tensor_parallel_degree);
  const bool whole = trainable_count(programs.parameters) == record_.parameter_count;
  TESSERA_INFO(cat(
      format("TFLOPS/GPU: %.4g FLOP a micro-batch of a rank (forward and backward, attention "
             "included",
             flops_per_micro_batch_),
      whole ? format("; 6 x parameters x tokens is %.4g",
                     6 * static_cast<double>(record_.parameter_count) * tokens)
            : "",
      ") / seconds of the step",
      recomputed_per_micro_batch_ > 0
          ? format("; hardware: with the %.4g that are computed again", recomputed_per_micro_batch_)
          : ""));
  if (const double peak = device_.peak.flops(); peak > 0)
    TESSERA_INFO(format("MFU: TFLOPS/GPU / %.4g, %s", peak / 1e12,
                        device_.peak.is_measured() ? "the speed of matrix products as measured here"
                                                   : "of --peak_tflops_per_gpu"));
}

// Memory lines go to standard output, which may be the same terminal.
void TrainingRun::open_console() {
  const bool tells = config_.log_level == "info" || config_.log_level == "debug";
  if (rank() > 0 || !tells || config_.console != "auto" || memory_ || !log_is_terminal()) return;
  console_ = std::make_unique<StatusBlock>(record_.step, total_steps_, world_size());
}

void TrainingRun::tell_total_steps() {
  if (dashboard_) dashboard_->steps(record_.step, total_steps_);
  if (console_) console_->total_steps(total_steps_);
}

void TrainingRun::tell_doing(const char* what) {
  if (watchdog_) watchdog_->watch(std::string_view(what) == "training");
  if (device_.flight) device_.flight->doing(what);
  if (console_) console_->doing(what);
  for (const auto& sink : sinks_) sink->doing(what);
}

void TrainingRun::track_memory() {
  if (!config_.enable_memory_profiling || rank() > 0) return;
  auto tell = [this,
               out = LineWriter(STDOUT_FILENO, "tessera: ")](const MemoryReport& report) mutable {
    out.write(cat(device_memory_line(report), "\n", host_memory_line(report), "\n"));
    for (const auto& sink : sinks_) sink->memory(report);
    if (!sinks_are_open_) early_memory_.push_back(report);
  };
  memory_ = std::make_unique<MemoryTracker>(rank(), device_.kind, std::move(tell));
}

void TrainingRun::tell_memory(const std::string& point, bool in_step) {
  if (memory_) memory_->at(point, record_.step, in_step, session_.get());
}

bool TrainingRun::tracks_step(int64_t batch) const {
  return memory_ && batch - first_step_ < kTrackedSteps;
}

// Of the programs of a step that begins.
NodeObserver TrainingRun::step_observer() {
  NodeObserver hashes, memory;
  if (hashes_) {
    hashes_->begin_step(record_.step);
    hashes = hashes_->observer();
  }
  if (tracks_step(record_.step) && device_.backend->shows_values())
    memory = memory_->observer(record_.step, *session_);
  if (!hashes || !memory) return hashes ? hashes : memory;
  return [hashes, memory](const NodeEvent& event) {
    hashes(event);
    memory(event);
  };
}

void TrainingRun::finish_step(RunningStep& step) {
  StepReport& report = step.report;
  const StepResult result = step.update.result();
  const double now = monotonic_seconds();
  report.step_seconds = now - std::max(step.start_seconds, last_step_end_seconds_);
  report.elapsed_seconds = now - train_start_seconds_;
  last_step_end_seconds_ = now;
  if (device_.communicator)
    report.exchange_seconds = device_.communicator->seconds_waited() - step.seconds_waited;
  if (tracks_step(report.batch)) {
    for (const Session::Program& program : session_->compiled())
      if (program.name == "apply") memory_->ran(*program.executable);
    memory_->at("After opt step", report.batch, true, session_.get());
  }
  // An agent waits for this line of rank 0.
  if (report.batch == first_step_)
    log_line(LogLevel::kInfo, __FILE__, __LINE__,
             cat(kFirstStepDone, " ", format("%.2f", now - start_seconds_), " s after start"),
             rank() == 0 && !device_.job_id.empty());
  record_.tokens_seen += result.tokens;
  // A loss scale that is too high is found out by such updates. It does not change the loss.
  bool lowered = !result.ok && !result.spike && result.loss_scale && std::isfinite(result.loss) &&
                 *result.loss_scale > session_->programs().loss_scaling->lowest;
  record_.skipped_in_a_row =
      result.ok ? 0 : record_.skipped_in_a_row + static_cast<int64_t>(!lowered);
  // Of a step without a token to learn there is none.
  report.loss = result.tokens > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN();
  report.z_loss = result.z_loss;
  report.loss_scale = result.loss_scale;
  report.gradient_norm = result.gradient_norm;
  report.ok = result.ok;
  report.tokens = result.tokens;
  report.tokens_seen = record_.tokens_seen;
  const double speed = per_second(report.flops + report.recomputed_flops, report.step_seconds);
  report.peak_flops = device_.peak.flops_after(speed);
  if (report.peak_flops > 0 && speed > report.peak_flops && rank() == 0)
    TESSERA_WARN_ONCE(
        "Steps are faster than --peak_tflops_per_gpu says that the device can be: they have no "
        "MFU. "
        "Give the peak of dense matrix products in the dtype of compute");
  report.memory_bytes = resident_bytes();
  report.allocated_bytes = session_->allocated_bytes();
  // By the steps of this process: a rewind takes record_.step back.
  report.seconds_left = report.elapsed_seconds / static_cast<double>(++steps_done_) *
                        static_cast<double>(total_steps_ - report.batch - 1);
  reader_->watch_starvation(report.batch - first_step_, report.data_seconds, report.step_seconds);
  watch_stragglers(report);
  if (watchdog_) watchdog_->step_done();
  for (const auto& sink : sinks_) sink->step(report);
  if (console_) {
    console_->step(report);
  } else if (report.batch % config_.logging_freq == 0 || report.batch + 1 == total_steps_) {
    TESSERA_INFO(progress_line(report));
    untold_.reset();
  } else {
    untold_ = report;
  }
  if (values_due(report.batch + 1)) {
    auto divisor = static_cast<double>(std::max<int64_t>(1, result.tokens));
    if (result.loss_scale)
      divisor *= *result.loss_scale *
                 one_token_share(program_options(config_, session_->programs().parallelism));
    tell_values(report.batch, 1 / divisor);
  }
  if (average_.add(report)) TESSERA_INFO(average_.line());
  if (report_) {
    if (const auto lines = report_->add(report)) TESSERA_INFO(cat("Report:\n", *lines));
  }
  if (lowered) {
    TESSERA_INFO(cat("Step ", report.batch, ": gradients overflow at loss scale ",
                     *result.loss_scale, "; the update was skipped, the scale is now ",
                     *result.next_loss_scale));
  } else if (!result.ok && !result.spike) {
    report_skip(step);
  }
  watch_targets();
  watch_loss(step, result.spike);
  announced_tiers_ |= result.announced;
  stopping_ = stopping_ || result.stop || (world_size() == 1 && interrupted());
}

// To a request to end while the next step is done: given at once, whatever the step takes.
void TrainingRun::prepare_answer() const {
  catch_interruptions(
      cat("finishing step ", record_.step + 1,
          saves() ? ", then saving a checkpoint" : "; without --checkpoint_dir nothing is saved"));
}

// Says what became of the weights.
void TrainingRun::tell_interruption() const {
  if (config_.eval_only) return TESSERA_WARN("Interrupted: the evaluation is given up");
  if (record_.step == first_step_)
    return TESSERA_WARN("Interrupted before the first step: there is nothing to save");
  const std::optional<Ending> ending = ending_heard();
  const char* end = !saves()                    ? "; nothing saved: there is no --checkpoint_dir"
                    : !saved()                  ? "; no checkpoint of it was written"
                    : ending == Ending::kGoesOn ? "; saved. The job goes on from there"
                    : ending == Ending::kAsked  ? "; saved. Give --resume_from_checkpoint to go on"
                                                : "; saved.";
  TESSERA_WARN(cat("Interrupted after step ", record_.step, end));
}

void TrainingRun::tell_end(const char* failure) {
  watchdog_.reset();
  const double now = monotonic_seconds();
  const EndReport report{failure != nullptr, now - start_seconds_,
                         train_start_seconds_ > 0 ? now - train_start_seconds_ : 0, stopping_,
                         failure ? failure : ""};
  for (const auto& sink : sinks_) sink->end(report);
}

}  // namespace tessera
