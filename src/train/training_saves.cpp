// Checkpoints that a training run writes: when, and into which of its directories.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/save_request.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/places.h"
#include "train/training_run.h"

namespace tessera {
namespace {

constexpr double kAskedAgain = 600;  // seconds

}  // namespace

bool TrainingRun::saved_in(size_t tier) const {
  const bool is_saving =
      saving_ && saving_->step == record_.step && (saving_->tiers >> tier & 1) != 0;
  return is_saving || tiers_[tier].last_saved_step == record_.step;
}

uint32_t TrainingRun::due_by_steps() const {
  uint32_t due = 0;
  for (size_t t = 0; t < tiers_.size(); ++t) {
    const int64_t steps = tiers_[t].options.interval.steps;
    if (steps > 0 && record_.step % steps == 0) due |= uint32_t{1} << t;
  }
  return due;
}

uint32_t TrainingRun::due_by_time() {
  uint32_t due = 0;
  if (rank() > 0) return due;
  for (size_t t = 0; t < tiers_.size(); ++t) {
    const double seconds = tiers_[t].options.interval.seconds;
    if (seconds > 0 && monotonic_seconds() - tiers_[t].last_begin_seconds >= seconds)
      due |= uint32_t{1} << t;
  }
  return due_as_asked() ? all_tiers() : due;
}

// One that fails is tried again, as long as it takes: the agent goes by the answer.
bool TrainingRun::due_as_asked() {
  // Who asks does so again until there is an answer.
  if (take_save_request() && !(saving_ && saving_->asked)) asked_for_ = monotonic_seconds();
  if (!asked_for_ || monotonic_seconds() < *asked_for_) return false;
  if (tiers_.empty()) answer_who_asked(true);  // nothing is saved anyway
  return !tiers_.empty();
}

void TrainingRun::answer_who_asked(bool saved) {
  take_save_request();  // one that came meanwhile has this answer, too
  if (saved) asked_for_.reset();
  if (stopping_ || record_.step >= total_steps_) return;  // the run ends by itself
  log_line(LogLevel::kInfo, __FILE__, __LINE__, saved ? kSavedAsAsked : kNotSavedAsAsked, true);
  // Who asked ends the run now: with another step it would be saved once more.
  if (saved && saver_ && !saver_->is_beside_training()) interrupted_soon();
}

bool TrainingRun::goes_on_in_place() const {
  return first_step_ > 0 && std::ranges::any_of(tiers_, [&](const Tier& tier) {
           return tier.last_saved_step == first_step_;
         });
}

// Of a run that goes on they go on: else a directory whose interval is longer than the time from
// one kill to the next would never get a checkpoint. One that has none has waited long enough.
void TrainingRun::begin_intervals() {
  for (Tier& tier : tiers_) {
    tier.last_begin_seconds = train_start_seconds_;
    if (tier.options.interval.seconds <= 0 || !tier.usable || !goes_on_in_place()) continue;
    const std::string age = on_first_rank("age of the last checkpoint", [&] {
      const auto last = newest_of_all({&tier.options.directory, 1}, [&](const auto& path) {
        return read_manifest(path).origin.run == origin_.run;
      });
      const auto seconds = last ? age_of(*last / kManifestName) : std::nullopt;
      return cat(seconds.value_or(tier.options.interval.seconds));
    });
    tier.last_begin_seconds -= std::stod(age);
  }
}

void TrainingRun::save_if_improved() {
  bool wanted = config_.best_val_loss != RunConfig().best_val_loss;
  double loss = last_validation_loss_;
  double best = record_.best_validation_loss.value_or(config_.best_val_loss);
  if (!wanted || tiers_.empty() || loss < 0 || !(loss < best)) return;
  TESSERA_INFO(cat("New validation loss record: ", loss));
  auto forget = [this, before = std::pair(record_.best_validation_loss, record_.best_checkpoint)] {
    std::tie(record_.best_validation_loss, record_.best_checkpoint) = before;
  };
  record_.best_validation_loss = loss;
  record_.best_checkpoint = checkpoint_name(name(record_.model.model_type), record_.step);
  save(all_tiers(), forget);
}

void TrainingRun::save(uint32_t tiers, std::function<void()> on_failure) {
  const double now = monotonic_seconds();
  for (size_t t = 0; t < tiers_.size(); ++t) {
    if ((tiers >> t & 1) == 0) continue;
    if ((saved_in(t) && !on_failure) || !tiers_[t].usable) tiers &= ~(uint32_t{1} << t);
    tiers_[t].last_begin_seconds = now;
  }
  if (tiers == 0) return;
  // The best one is worth waiting for.
  if (!on_failure && skips_busy_save()) {
    if (asked_for_) asked_for_ = now + 1;  // not in each step until then
    return;
  }
  tell_doing("saving a checkpoint");
  finish_save();
  record_.schedule = schedule_.state(record_.step);
  record_.loss_scale = session_->loss_scale();
  if (losses_) record_.loss_history = losses_->losses();
  CheckpointContent content{std::string(name(record_.model.model_type)),
                            record_.step,
                            {},
                            to_json(record_),
                            origin_,
                            attached_};
  if (reader_->is_stream())
    content.attached.push_back(
        {std::string(kStreamName), to_bytes(reader_->whole_state()), kDataFolder});
  // While updates are being skipped nothing is removed: the last good checkpoint may be the next to
  // go.
  const bool good = record_.skipped_in_a_row == 0;
  const bool last = stopping_ || record_.step >= total_steps_;
  std::vector<CheckpointSaver::Destination> destinations;
  for (size_t t = 0; t < tiers_.size(); ++t) {
    if ((tiers >> t & 1) == 0) continue;
    const Tier& tier = tiers_[t];
    TESSERA_INFO(cat("Writing checkpoint to ", tier.options.directory, "/",
                     checkpoint_name(content.model_type, record_.step), "."));
    destinations.push_back({tier.options.directory,
                            {good ? tier.options.num_kept : 0, record_.best_checkpoint, last},
                            [lock = tier.lock.get()] {
                              if (lock) lock->require_held();
                            },
                            tier.apart ? first_on_host_ : 0});
  }
  tell_memory(cat("Before ckpt (", config_.checkpoint_type, ")"));
  saving_ = {record_.step, tiers, good, asked_for_.has_value(), std::move(on_failure)};
  if (asked_for_) asked_for_ = now + kAskedAgain;
  saver_->start(std::move(destinations), std::move(content));
  if (!saver_->is_beside_training()) finish_save();
  tell_doing("training");
}

// All ranks skip it or none does, also where some of them have already seen the end of the one
// before.
bool TrainingRun::skips_busy_save() const {
  if (config_.busy_checkpoint != "skip") return false;
  bool busy = saving_ && !saver_->is_done();
  if (device_.control) busy = device_.control->any("whether a checkpoint is still written", busy);
  if (busy)
    TESSERA_INFO(cat("No checkpoint of step ", record_.step, ": the one before is still written"));
  return busy;
}

void TrainingRun::finish_save_if_done() {
  if (saving_ && saver_->is_done()) finish_save();
}

// By the ranks that are at work on it, and else by the first one.
void TrainingRun::tell_slow_save(const Saving& saving, double seconds, bool writes) const {
  if (!writes && rank() > 0) return;
  std::vector<std::string> directories;
  for (size_t t = 0; t < tiers_.size(); ++t)
    if ((saving.tiers >> t & 1) != 0) directories.push_back(tiers_[t].options.directory);
  TESSERA_WARN(cat("Training has waited ", format("%.0f", seconds),
                   " s for the checkpoint of step ", saving.step, " in '",
                   join(directories, "', '"), "': ",
                   !writes            ? "this rank has written its files, and the rest is not done"
                   : world_size() > 1 ? cat("rank ", rank(), " on ", host_name(), " still writes")
                                      : "it is still written"));
}

void TrainingRun::finish_save() {
  if (!saving_) return;
  const Saving saving = *std::exchange(saving_, std::nullopt);
  CheckpointSaver::Result result;
  const std::string failed =
      cat("Checkpoint failed",
          stopping_ || record_.step >= total_steps_ ? "" : ", training goes on", ": ");
  try {
    result = saver_->finish(
        [&](double seconds, bool writes) { tell_slow_save(saving, seconds, writes); });
  } catch (const UserError& error) {
    TESSERA_WARN(failed + error.what());
  }
  if (stragglers_) stragglers_->add_saving(result.writing_seconds);
  bool any = false;
  size_t next = 0;
  for (size_t t = 0; t < tiers_.size() && next < result.saved.size(); ++t) {
    if ((saving.tiers >> t & 1) == 0) continue;
    const CheckpointSaver::Saved& saved = result.saved[next++];
    if (!saved.error.empty()) {
      // A full disk must not end a run: what was saved before is intact, and the next one may fit.
      TESSERA_WARN(failed + saved.error);
      continue;
    }
    tiers_[t].last_saved_step = saving.step;
    tiers_[t].last_saved_path = saved.path;
    TESSERA_INFO("Completed checkpoint.");
    const auto bytes = static_cast<double>(saver_->staging_bytes());
    TESSERA_INFO(cat("Checkpoint of step ", saving.step,
                     tiers_.size() > 1 ? cat(" in '", tiers_[t].options.directory, "'") : "", ": ",
                     format_bytes(saver_->staging_bytes()), world_size() > 1 ? " of this rank" : "",
                     format(" in %.2f s (%.2f GB/s); training waited %.2f s", saved.seconds,
                            bytes / saved.seconds / 1e9, result.waiting_seconds)));
    if (any) continue;
    any = true;  // the first one is the fastest to read
    if (saving.good) record_.last_good_checkpoint = saved.path.string();
    last_saved_step_ = saving.step;
    faults_.saved(saving.step, saving.step - first_step_, saved.path);
  }
  if (saving.asked) answer_who_asked(any);
  tell_memory(cat("After ckpt (", config_.checkpoint_type, ")"));
  if (!any && saving.on_failure) saving.on_failure();
}

}  // namespace tessera
