#include "train/training_run.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/interruption.h"
#include "base/log.h"
#include "ops/composite/dropout.h"
#include "options/option_record.h"
#include "programs/frozen_parameters.h"

namespace tessera {
namespace {

// Until there is something to save, work that does not notice a request is ended after this time.
constexpr std::chrono::seconds kPatience{10};

MicroBatch view(const Batch& batch, std::span<const int64_t> row_keys = {}) {
  return {batch.inputs, batch.targets, row_keys, batch.document_starts};
}

}  // namespace

TrainingRun::TrainingRun(const RunConfig& config, const ModelConfig& model, Device device)
    : config_(config),
      device_(std::move(device)),
      schedule_(schedule_options(config)),
      average_(config.logging_freq_for_avg) {
  start_seconds_ = monotonic_seconds();
  record_.model = model;
  record_.options = without_secrets(with_model_names(with_absolute_paths(config)));
  record_.parameter_count = parameter_count(model);
  if (!saves() || config_.eval_only) return;
  for (CheckpointTier& tier : checkpoint_tiers(config_))
    tiers_.emplace_back().options = std::move(tier);
}

// The last sink first: the thread of a RankWatch tells the dashboard in front of it.
TrainingRun::~TrainingRun() {
  while (!sinks_.empty()) sinks_.pop_back();
}

RunEnd TrainingRun::run() {
  catch_interruptions("the run ends, nothing is trained yet", kPatience);
  try {
    run_to_the_end();
  } catch (const Interrupted&) {
    stopping_ = true;
  } catch (const CommError& error) {
    if (total_steps_ > 0 || !interrupted_soon()) {
      tell_end(error.what());
      throw;
    }
    stopping_ = true;  // another rank ended first, and nothing is lost
  } catch (const std::exception& error) {
    tell_end(error.what());
    throw;
  }
  tell_end();
  if (!stopping_) return RunEnd::kFinished;
  tell_interruption();
  return RunEnd::kInterrupted;
}

void TrainingRun::run_to_the_end() {
  check_profiling(config_);
  TESSERA_INFO(cat("tessera on ", device_.description));
  serve_status();
  open_guards();
  open_dashboard();
  track_memory();
  tell_memory("Before model creation");
  TESSERA_INFO("Creating Model");
  Parallelism parallelism = make_parallelism(config_, record_.model, world_size(), meet_hosts());
  record_.mesh = parallelism.state_text();
  session_ = std::make_unique<Session>(
      build_programs(model_builder(record_.model), program_options(config_, parallelism)),
      *device_.backend, rank());
  if (device_.flight)
    for (const Session::Program& program : session_->compiled())
      device_.flight->add_program(program.name, *program.executable);
  TESSERA_INFO(format("Created model with total parameters: %lld (%.2f B)",
                      static_cast<long long>(record_.parameter_count),
                      static_cast<double>(record_.parameter_count) / 1e9));
  if (!config_.freeze.empty() || record_.model.lora.rank > 0)
    TESSERA_INFO(cat("Trained parameters: ", trainable_count(session_->programs().parameters)));
  if (world_size() > 1) TESSERA_INFO(cat("Ranks: ", parallelism.to_text()));
  for (const Declined& declined : session_->declined())
    if (rank() == 0)
      TESSERA_WARN(cat("No kernel takes ", to_string(declined),
                       ". The definition runs, which may take memory and time of another order"));
  check_ranks_agree();
  if (!tiers_.empty()) saver_ = std::make_unique<CheckpointSaver>(*session_, checkpoint_group());
  check_memory();
  open_checkpoint_directories();
  Damaged damaged;
  std::optional<std::filesystem::path> checkpoint = find_checkpoint(damaged);
  if (!checkpoint) open_pretrained();
  if (checkpoint) open_tokenizer(*checkpoint);
  make_tokenizer();
  check_final_model();
  tell_doing("preparing the data");
  const int64_t counted = memory_of_lanes() + memory_of_baselines();
  prepare_data();
  check_same_text();
  check_baselines();
  if (memory_of_lanes() + memory_of_baselines() > counted) check_memory();
  record_inputs();
  if (rank() == 0)
    for (const std::string& warning : data_.warnings) TESSERA_WARN_ONCE(warning);
  if (rank() == 0 && config_.validation_freq.value_or(0) > 0 && !data_.validation_samples &&
      !config_.use_synthetic_data && !config_.eval_only)
    TESSERA_WARN(cat("--validation_freq ", *config_.validation_freq,
                     " has no effect: there is no validation data; give --validation_dataset or "
                     "--test_dir, or have more of the training data held out "
                     "(--validation_fraction)"));
  if (!config_.hash_file.empty() && !device_.backend->shows_values())
    throw UserError(
        "--hash_file: this device does not show the values of ops; take --device_type cpu");
  tell_memory("Before FSDP wrapper");
  session_->allocate();
  tell_memory("After FSDP wrapper");
  session_->set_decay(config_.weight_decay, config_.decay_all);
  const Session::Memory memory = session_->planned_memory();
  TESSERA_CHECK(session_->allocated_bytes() == memory.total(),
                "allocated bytes differ from the plan");
  const bool exact = session_->compiled().front().executable->memory().exact;
  TESSERA_INFO(cat(
      "Memory", world_size() > 1 ? " of each rank" : "",
      exact ? ": planned = allocated = " : ": planned ", format_bytes(memory.total()),
      " (parameters ", format_bytes(memory.parameters),
      memory.compute_weights > 0 ? cat(", compute weights ", format_bytes(memory.compute_weights))
                                 : "",
      ", moments ", format_bytes(memory.optimizer), ", gradients ", format_bytes(memory.gradients),
      exact ? ", arena " : ", temporaries by the device's compiler ", format_bytes(memory.arena),
      memory.far_arena > 0 ? cat(", far arena ", format_bytes(memory.far_arena)) : "", ")"));
  if (saves_beside_training_) {
    saver_->save_beside_training(*device_.pool);
    TESSERA_INFO(cat("Checkpoints are written beside training, from ",
                     format_bytes(saver_->staging_bytes()), " more"));
  }
  tell_doing("loading the state");
  if (checkpoint) {
    resume(*checkpoint, damaged);
  } else {
    load_weights();
    if (rank() == 0 && !config_.eval_only)
      for (const std::string& warning : schedule_.warnings()) TESSERA_WARN(warning);
  }
  // Only now, when nothing that the user gave is in doubt: these make files.
  open_sinks();
  if (!config_.hash_file.empty()) {
    std::string suffix = world_size() > 1 ? cat(".rank", rank()) : "";
    hashes_ = std::make_unique<HashRecorder>(config_.hash_file + suffix);
  }
  fill_dashboard();
  profile_ = TrainingProfile(config_, *session_, origin_.run, rank(), world_size(), device_.control,
                             device_.measure_light);
  if (config_.eval_only) {
    evaluate_only();
  } else {
    train();
  }
  if (config_.compare_baselines && !stopping_) print_baselines();
  TESSERA_INFO(cat("Peak resident memory of the process: ", format_bytes(peak_resident_bytes()),
                   ", of which planned ", format_bytes(memory.total())));
}

void TrainingRun::train() {
  if (!data_.has_training())
    throw UserError("there is no training data; give --dataset or --training_dir");
  prepare_answer();
  if (stop_requested()) throw Interrupted();
  open_reader();
  tell_formulas();
  train_start_seconds_ = monotonic_seconds();
  begin_intervals();
  open_console();
  tell_total_steps();
  start_watching();
  // What the run before was asked to end in, or was killed in.
  if (std::exchange(record_.validation_unfinished, false) && data_.validation_samples &&
      asks_for_validation(config_))
    validate_after_step();
  if (goes_on_in_place() && record_.step < total_steps_ && !stopping_) save(due_by_steps());
  while (record_.step < total_steps_ && !stopping_) {
    const int64_t epoch_before = reader_->epoch();
    if (!start_step()) break;
    const bool last = record_.step == total_steps_;
    const bool validates = !last && validation_due(reader_->epoch() > epoch_before);
    const uint32_t by_steps = last ? 0 : due_by_steps();
    // A device that runs ahead of the host gets its next step before this one's results are read.
    const bool ahead = device_.backend->runs_ahead() && !last && !validates && by_steps == 0 &&
                       !values_due(record_.step) && !losses_ && !profile_.is_recording();
    finish_steps(ahead ? 1 : 0);
    if (profile_.is_full()) {
      tell_doing("writing a trace");
      profile_.write();
      tell_doing("training");
    }
    if (!spike_text_.empty() && !stopping_ && rewind()) continue;
    if (announced_tiers_ != 0) finish_steps(0);
    const uint32_t due = last ? 0 : by_steps | std::exchange(announced_tiers_, 0);
    if (validates) validate_after_step();
    if (due != 0 && !stopping_) {
      save(due);
      stopping_ = stop_requested();
    }
    finish_save_if_done();
  }
  finish_steps(0);
  if (untold_) TESSERA_INFO(progress_line(*untold_));  // where a stream or a request ended it
  watchdog_.reset();
  if (stragglers_) tell_stragglers(stragglers_->finish());
  profile_.finish();
  stopping_ = stopping_ || stop_requested();
  // What is due at the last step, and the model as it is in the end.
  if (record_.step >= total_steps_ && validation_due(true) && validated_at_ != record_.step)
    validate_after_step();
  tell_doing("saving the last checkpoint");
  finish_save();
  if (!stopping_ || record_.step != first_step_) save(all_tiers());
  finish_save();
  console_.reset();
  finish();
}

void TrainingRun::open_reader() {
  const Parallelism& parallelism = session_->programs().parallelism;
  first_step_ = record_.step;
  reader_.emplace(config_, parallelism, data_, device_.control, record_.position,
                  std::move(stream_state_));
  total_steps_ = last_step();
  if (rank() == 0 && !reader_->is_stream()) {
    const int64_t end = config_.epochs * data_.training_samples->samples();
    if (record_.position > end)
      TESSERA_WARN(cat("The run goes on at window ", record_.position, ", but its data end at ",
                       end, " (--epochs ", config_.epochs,
                       "): there is nothing left to train on. Is it the same --dataset?"));
  }
  TESSERA_INFO(
      cat("Training on ", reader_->to_text(), " ", total_steps_ - first_step_, " steps of ",
          config_.train_batch_size * parallelism.data_ranks() * config_.gradient_accumulation_steps,
          " windows"));
}

int64_t TrainingRun::last_step() const {
  if (reader_->is_stream()) return std::max(record_.step, config_.max_steps);
  const int64_t samples = config_.train_batch_size * session_->programs().parallelism.data_ranks() *
                          config_.gradient_accumulation_steps;
  const int64_t end = config_.epochs * data_.training_samples->samples();
  const int64_t left = (std::max<int64_t>(0, end - record_.position) + samples - 1) / samples;
  return std::max(record_.step, std::min(config_.max_steps, record_.step + left));
}

bool TrainingRun::try_reading(const std::function<void()>& read) {
  return tessera::try_reading(read, reading_error_);
}

void TrainingRun::require_all_read() const {
  if (!stopping_) return;
  std::vector<std::string> all{reading_error_};
  if (device_.control) all = device_.control->exchange("errors of the data", reading_error_);
  const auto failed = std::ranges::find_if(all, [](const auto& error) { return !error.empty(); });
  if (failed == all.end()) return;
  if (std::ranges::count(all, *failed) == std::ssize(all)) throw UserError(*failed);
  throw UserError(cat("rank ", failed - all.begin(), ": ", *failed));
}

void TrainingRun::finish() {
  require_all_read();
  if (saves() && !saved() && !(stopping_ && record_.step == first_step_)) {
    throw UserError(cat(stopping_ ? "interrupted" : "training finished", " after step ",
                        record_.step, ", but its last checkpoint could not be written to '",
                        join(config_.checkpoint_dir, "', '"), "': see the warning above"));
  }
  if (config_.save_final_model && !stopping_) save_final_model();
}

// A key belongs to a sample of the job, not to the rank that works on it; with --same_seed to the
// place that the sample has on its rank: there the samples of a global batch begin at its first
// one.
std::vector<int64_t> TrainingRun::row_keys_of(const Batch& batch) const {
  int64_t rows = config_.train_batch_size, first = batch.first_sample;
  const int64_t all_rows = rows * session_->programs().parallelism.data_ranks();
  if (config_.same_seed) first -= (first - record_.position) % all_rows;
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < rows; ++i) {
    keys.push_back(dropout_row_key(static_cast<uint64_t>(config_.seed),
                                   static_cast<uint64_t>(record_.step),
                                   static_cast<uint64_t>(first + i * batch.sample_stride)));
  }
  return keys;
}

bool TrainingRun::fetch(std::vector<Batch>& batches) {
  using Fetched = TrainingReader::Fetched;
  const Fetched fetched = reader_->fetch(batches, record_.step == 0);
  if (fetched == Fetched::kStopped) {
    stopping_ = true;
    reading_error_ = reader_->error();
  } else if (fetched == Fetched::kEnded) {
    total_steps_ = record_.step;
    tell_total_steps();
  }
  return fetched == Fetched::kBatches;
}

bool TrainingRun::start_step() {
  prepare_answer();
  in_phase("waiting for data");
  profile_.begin_step(record_.step);
  if (device_.flight) device_.flight->begin_step(record_.step);
  RunningStep step;
  StepReport& report = step.report;
  double start = monotonic_seconds();
  // Epochs count from 1 here; a step belongs to the epoch of its first window.
  report.epoch = reader_->epoch() + 1;
  report.learning_rate = schedule_.rate(record_.step, report.epoch);
  if (!fetch(step.batches)) return false;
  if (config_.data_hash) report.data_hash = reader_->hash_on_all_ranks(step.batches);
  for (const Batch& batch : step.batches) step.row_keys.push_back(row_keys_of(batch));
  report.samples = reader_->samples();
  for (size_t m = 0; m < step.batches.size(); ++m)
    step.micro_batches.push_back(view(step.batches[m], step.row_keys[m]));
  step.start_seconds = monotonic_seconds();
  report.data_seconds = step.start_seconds - start;
  profile_.has_data();
  report.batches_ready = reader_->batches_ready();
  const NodeObserver watch = step_observer();
  const NodeObserver* observer = watch ? &watch : nullptr;
  limit_loss();
  in_phase("computing gradients");
  if (device_.communicator) step.seconds_waited = device_.communicator->seconds_waited();
  const bool tracked = tracks_step(record_.step);
  if (tracked) tell_memory("Before train step", true);
  faults_.before_gradients(record_.step, record_.step - first_step_, *session_);
  session_->accumulate(step.micro_batches, observer);
  faults_.after_gradients(record_.step, record_.step - first_step_, *session_);
  if (tracked) tell_memory("After train step", true);
  in_phase("updating the weights");
  if (saver_) saver_->wait_for_copy();
  step.update =
      session_->start_update(report.learning_rate, config_.grad_clip,
                             {.stop = interrupted(), .announced = due_by_time()}, observer);
  profile_.end_step();
  report.batch = record_.step;
  ++record_.step;
  record_.position = reader_->position();
  record_.epoch = reader_->epoch() + 1;
  report.next_learning_rate = schedule_.rate(record_.step, record_.epoch);
  const auto micro_batches = static_cast<double>(step.micro_batches.size());
  report.flops = flops_per_micro_batch_ * micro_batches;
  report.recomputed_flops = recomputed_per_micro_batch_ * micro_batches;
  running_.push_back(std::move(step));
  return true;
}

void TrainingRun::finish_steps(size_t but) {
  while (running_.size() > but) {
    RunningStep step = std::move(running_.front());
    running_.pop_front();
    finish_step(step);
  }
}

void TrainingRun::report_skip(const RunningStep& step) {
  const int64_t number = step.report.batch;
  std::string where;
  if (device_.backend->shows_values()) {
    // The weights are what they were before the step, so the same batches show the same values
    // again. Not so where the device has done a step since.
    NonFiniteFinder finder;
    NodeObserver observer = finder.observer();
    session_->accumulate(step.micro_batches, &observer);
    where = finder.first();
  } else {
    where = "this device does not show; --device_type cpu, from the last checkpoint, does";
  }
  if (where.empty())
    where = running_.empty() ? "the sum of the gradients"
                             : "not seen with the weights of step " + std::to_string(number + 1);
  TESSERA_WARN(cat("Step ", number,
                   ": loss or gradient norm is not finite; the update was skipped (",
                   record_.skipped_in_a_row, " in a row). First non-finite value: ", where));
  require_few_skips(number, "were not finite", cat("first in ", where));
}

void TrainingRun::require_few_skips(int64_t step, const std::string& what,
                                    const std::string& why) const {
  if (record_.skipped_in_a_row <= config_.max_skipped_steps) return;
  std::string good = record_.last_good_checkpoint.empty()
                         ? "there is no good checkpoint"
                         : cat("the last good checkpoint is ", record_.last_good_checkpoint);
  throw UserError(cat("stopped at step ", step, ": ", record_.skipped_in_a_row,
                      " updates in a row ", what, ", more than --max_skipped_steps ",
                      config_.max_skipped_steps, " (", why, "); ", good));
}

}  // namespace tessera
