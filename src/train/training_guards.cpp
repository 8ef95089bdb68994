// What keeps a training run from being lost: its watchdog, stragglers, losses that stand out.
#include <unistd.h>

#include <thread>

#include "base/exit_status.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/terminal_text.h"
#include "checkpoint/directory.h"
#include "flight/process_report.h"
#include "observe/heartbeat_file.h"
#include "train/training_run.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// What telling of a run that is stuck may take: nothing of it is certain to work any more.
constexpr std::chrono::seconds kLastWords{5};

}  // namespace

void TrainingRun::open_guards() {
  faults_ = FaultInjector(config_.inject, rank(), world_size(), device_.attempt);
  if (config_.loss_spike_policy != "none")
    losses_.emplace(config_.loss_spike_threshold, config_.loss_spike_window);
  if (config_.heartbeat_file.empty() || rank() > 0) return;
  try {
    sinks_.push_back(std::make_unique<HeartbeatFile>(config_.heartbeat_file));
  } catch (const UserError& error) {
    if (device_.attempt == 0) throw;
    TESSERA_WARN(cat(error.what(), "; training goes on without"));
  }
}

void TrainingRun::start_watching() {
  if (device_.control && config_.straggler_interval > 0)
    stragglers_.emplace(*device_.control, config_.straggler_interval, config_.straggler_threshold);
  auto place = [this] {
    const std::string call = device_.communicator ? device_.communicator->unfinished_call() : "";
    return Watchdog::Place{cat("step ", watched_step_.load(), ", ", step_phase_.load(),
                               call.empty() ? "" : cat(", in ", call, " with other ranks")),
                           !call.empty()};
  };
  watchdog_ =
      std::make_unique<Watchdog>(Watchdog::Limits{config_.first_step_timeout, config_.step_timeout},
                                 place, [this](const std::string& text) { end_stalled(text); });
  tell_doing("training");
}

// On the watchdog's thread: the run's own may never move again.
void TrainingRun::end_stalled(const std::string& what) {
  const std::string text =
      world_size() > 1 ? cat("rank ", rank(), " on ", host_name(), ": ", what) : what;
  std::thread([this, text, what] {
    print_error(text);
    if (device_.control) {
      device_.control->report_failure(what);  // which writes the report of this process, too
    } else {
      write_process_report(what);
    }
    ::_exit(kStalledStatus);
  }).detach();
  std::this_thread::sleep_for(kLastWords);
  ::_exit(kStalledStatus);
}

void TrainingRun::in_phase(const char* phase) {
  watched_step_ = record_.step;
  step_phase_ = phase;
}

void TrainingRun::watch_stragglers(const StepReport& report) {
  if (stragglers_) tell_stragglers(stragglers_->add(report, reader_->seconds()));
}

void TrainingRun::tell_stragglers(const std::optional<StragglerReport>& slowest) {
  if (!slowest) return;
  for (const auto& sink : sinks_) sink->stragglers(*slowest);
  if (!slowest->is_straggler || rank() > 0) return;
  TESSERA_WARN(cat("Steps ", slowest->batch - slowest->steps + 1, " to ", slowest->batch, ": rank ",
                   slowest->rank, " on ", slowest->host, " is slow: ", slowest->phase,
                   format(" takes %.3g s a step, %.3g s on the other ranks", slowest->seconds,
                          slowest->median_seconds),
                   slowest->median_seconds > 0
                       ? format(" (%.2f times)", slowest->seconds / slowest->median_seconds)
                       : ""));
}

void TrainingRun::limit_loss() {
  if (!losses_) return;
  loss_limit_ = losses_->limit();
  if (config_.loss_spike_policy != "warn") session_->set_max_loss(loss_limit_);
}

// A step without one token to learn is no error: its conversations may all have been cut off.
void TrainingRun::watch_targets() const {
  constexpr int64_t kLooked = 3;
  if (record_.tokens_seen > 0 || rank() > 0) return;
  if (steps_done_ != std::min(kLooked, total_steps_ - first_step_)) return;
  TESSERA_WARN(cat("No token was learned in the first ", steps_done_,
                   " steps: tessera data inspect shows what is; answers that ",
                   "--max_context_width cuts off are not"));
}

void TrainingRun::watch_loss(const RunningStep& step, bool spike) {
  if (!losses_) return;
  const double loss = step.report.loss;
  if (config_.loss_spike_policy == "warn") spike = loss > loss_limit_;
  const std::string text =
      cat("Step ", step.report.batch, ": loss ", format("%.5g", loss), " is a spike, above ",
          format("%.5g (median %.5g of the last %lld steps and %g deviations)", loss_limit_,
                 losses_->median(), static_cast<long long>(losses_->losses().size()),
                 config_.loss_spike_threshold));
  if (step.report.tokens > 0) losses_->add(loss);  // else the loss of nothing
  if (!spike) return;
  if (config_.loss_spike_policy == "warn") {
    if (rank() == 0) TESSERA_WARN(text);
    return;
  }
  if (config_.loss_spike_policy == "rewind") {
    spike_text_ = text;
    return;
  }
  if (rank() == 0)
    TESSERA_WARN(cat(text, "; the update was skipped (", record_.skipped_in_a_row, " in a row)"));
  require_few_skips(step.report.batch, "were skipped", "loss spikes");
}

// To the newest checkpoint of a step before the spike. There may be later ones that were damaged
// when the run began.
bool TrainingRun::rewind() {
  const std::string text = std::exchange(spike_text_, "");
  const int64_t spike = record_.step - 1;
  if (record_.loss_spike_rewinds >= config_.max_loss_spike_rewinds)
    throw UserError(cat("stopped: ", text, ", after ", record_.loss_spike_rewinds,
                        " rewinds, which is --max_loss_spike_rewinds; the last good checkpoint is ",
                        record_.last_good_checkpoint));
  tell_doing("going back to a checkpoint");
  finish_save();
  auto find = [&](const Damaged& damaged) {
    return newest_of_all(config_.checkpoint_dir, [&](const fs::path& path) {
      const auto entry = parse_checkpoint_name(path);
      return entry && entry->step <= spike && !damaged.paths.contains(path) &&
             read_manifest(path).origin.run == origin_.run;
    });
  };
  // Verified first: the state that there is stays where none is whole, and is saved where a request
  // or an error ends the search.
  Damaged damaged;
  std::optional<fs::path> checkpoint;
  stopping_ = !try_reading([&] { checkpoint = open_newest(find, damaged, true); });
  if (stopping_) {
    to_resume_.reset();
    if (rank() == 0)
      TESSERA_WARN(cat(text, "; the run ends before it has gone back: the update was skipped"));
    return false;
  }
  if (!checkpoint) {
    if (rank() == 0)
      TESSERA_WARN(cat(text, "; there is no checkpoint to go back to: the update was skipped"));
    tell_doing("training");
    require_few_skips(spike, "were skipped", "loss spikes");
    return false;
  }
  const RunRecord saved = record_of(*to_resume_);
  InterruptedBy never(kNeverRequested);  // half of it is no state
  on_all_ranks("loading of the checkpoint", [&] {
    load(*checkpoint, saved);
    return std::string();
  });
  to_resume_.reset();
  untold_.reset();
  take_counters(saved);
  // The reader stays where it is, behind the spike: what came since the checkpoint is left out.
  ++record_.loss_spike_rewinds;
  record_.skipped_samples = saved.skipped_samples;
  record_.skipped_samples.emplace_back(saved.position, record_.position);
  total_steps_ = last_step();
  tell_total_steps();
  validated_at_ = -1;
  for (Tier& tier : tiers_)
    if (tier.last_saved_step != record_.step) tier.last_saved_step = -1;
  last_saved_step_ = record_.step;
  for (const auto& sink : sinks_) sink->rewound(record_.step);
  if (rank() == 0)
    TESSERA_WARN(cat(text, "; went back to '", checkpoint->string(), "': what steps ", saved.step,
                     " to ", spike, " learned is undone, and the samples since then, ",
                     saved.position, " to ", record_.position - 1, ", are left out (rewind ",
                     record_.loss_spike_rewinds, " of at most ", config_.max_loss_spike_rewinds,
                     ")"));
  tell_doing("training");
  return true;
}

}  // namespace tessera
