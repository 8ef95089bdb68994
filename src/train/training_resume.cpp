// A training run goes on from a checkpoint: its state, and what both must have in common:
// tokenizer, text, options.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/places.h"
#include "hub/tokenizer_files.h"
#include "options/lora_options.h"
#include "options/option_record.h"
#include "options/resume_comparison.h"
#include "programs/frozen_parameters.h"
#include "train/training_run.h"
#include "weights/model_export.h"
#include "weights/open_checkpoint.h"
#include "weights/trained_tokenizer.h"

namespace tessera {
namespace fs = std::filesystem;

// What is damaged is only seen when it is in the state: then the next older one is loaded over it,
// by all ranks.
void TrainingRun::resume(fs::path checkpoint, Damaged& damaged) {
  RunRecord saved = record_of(*to_resume_);
  double seconds = 0;
  while (true) {
    TESSERA_INFO(cat("Loading checkpoint from ", checkpoint.string(), " ..."));
    if (saved.mesh != record_.mesh)
      TESSERA_INFO(cat("It was saved with ", saved.mesh, ", this run has ", record_.mesh, "."));
    const double start = monotonic_seconds();
    const std::string damage =
        find_damage("loading of the checkpoint", [&] { load(checkpoint, saved); });
    seconds = monotonic_seconds() - start;
    if (damage.empty()) break;
    skip(checkpoint, damage, damaged);
    checkpoint = find_checkpoint(damaged).value();
    saved = record_of(*to_resume_);
  }
  const std::string where = checkpoint.string();
  TESSERA_INFO(cat("Read ", format_bytes(to_resume_->bytes_read()),
                   world_size() > 1 ? " by this rank" : "", ", checked on the way",
                   format("; loading took %.2f s", seconds)));
  to_resume_.reset();
  take_counters(saved);
  record_.epoch = saved.epoch;
  record_.base_model = base_model_of(saved);
  record_.position = saved.position;
  load_stream_state(checkpoint, saved);
  record_.loss_spike_rewinds = saved.loss_spike_rewinds;
  record_.validation_unfinished = saved.validation_unfinished;
  record_.skipped_samples = saved.skipped_samples;
  record_.last_good_checkpoint = saved.skipped_in_a_row == 0 ? where : saved.last_good_checkpoint;
  require_same_tokenizer(checkpoint, saved);
  warn_of_changes(saved);
  if (saved.converted_from.empty()) {
    for (const std::string& line : schedule_.resume(saved.schedule)) TESSERA_INFO(line);
    record_.options.plateau = saved.schedule.plateau;
    record_.options.step_lr_gamma = saved.schedule.gamma;
  } else {
    TESSERA_INFO(cat("It was made of ", saved.converted_from,
                     ": the schedule is that of the options, from step ", saved.step, " on."));
  }
  last_saved_step_ = record_.step;
  find_in_tiers(checkpoint, damaged);
  TESSERA_INFO(cat("Checkpoint loaded from ", where, "."));
}

// What belongs to the weights, but for the place in the data.
void TrainingRun::take_counters(const RunRecord& saved) {
  record_.step = saved.step;
  record_.tokens_seen = saved.tokens_seen;
  record_.skipped_in_a_row = saved.skipped_in_a_row;
  record_.best_validation_loss = saved.best_validation_loss;
  record_.best_checkpoint = saved.best_checkpoint;
  if (saved.loss_scale && session_->loss_scale()) session_->set_loss_scale(*saved.loss_scale);
  if (losses_) losses_->restore(saved.loss_history);
}

// The state, of a checkpoint that fits.
void TrainingRun::load(const fs::path& checkpoint, const RunRecord& saved) {
  const std::string where = checkpoint.string();
  if (!config_.eval_only && saved.options.optimizer != config_.optimizer) {
    throw UserError(
        cat("checkpoint '", where, "' was trained with --optimizer ", saved.options.optimizer,
            ", this run has --optimizer ", config_.optimizer,
            ", which keeps other state: give --optimizer ", saved.options.optimizer,
            ", or begin a new run with its weights (tessera export, then --finetune 1)"));
  }
  const Lora &there = saved.model.lora, &here = record_.model.lora;
  if (there.rank != here.rank || there.targets != here.targets) {
    throw UserError(cat("checkpoint '", where, "' has ", describe(there), ", this run has ",
                        describe(here),
                        ": give the same --lora_rank and --lora_targets, or begin a new run with "
                        "its weights (tessera export, of adapters with --merge_adapter 1)"));
  }
  std::vector<StateTarget> targets = session_->checkpoint_targets();
  if (config_.eval_only) {  // of the weights
    to_resume_->load_some(targets, device_.pool);
  } else {
    require_same_frozen(session_->programs().parameters, config_, saved.options, where);
    to_resume_->load_all(targets, device_.pool);
  }
  if (std::string difference = model_difference(saved.model, record_.model); !difference.empty()) {
    throw UserError(cat("checkpoint '", where, "' is of another model: ", difference));
  }
}

// Before any text is read: that takes long, and is wasted with another tokenizer.
void TrainingRun::open_tokenizer(const fs::path& checkpoint) {
  RunRecord saved = record_of(*to_resume_);
  const bool there = is_tokenizer_there(config_);
  if (!there && !saved.tokenizer && !data_need_tokenizer(config_)) return;
  if (saved.tokenizer && !there) {
    std::string own = tokenizer_of(checkpoint, saved);
    TESSERA_INFO(cat("There is no tokenizer '", config_.tokenizer,
                     "' on this machine: that of the checkpoint is taken, ", own));
    config_.tokenizer = own;
  }
  data_.tokenizer = load_tokenizer(config_.tokenizer);
  require_same_tokenizer(checkpoint, saved);
}

void TrainingRun::require_same_tokenizer(const fs::path& checkpoint, const RunRecord& saved) const {
  if (!data_.tokenizer || !saved.tokenizer) return;
  const std::string other =
      other_tokenizer_text(config_.tokenizer, *data_.tokenizer, checkpoint, saved);
  if (other.empty()) return;
  throw UserError(cat(other, ". Give --tokenizer ", tokenizer_of(checkpoint, saved)));
}

// What a checkpoint says of where its weights come from, and the tokenizer itself: as they are now,
// whatever becomes of the files.
void TrainingRun::record_inputs() {
  if (rank() > 0 || config_.eval_only) return;  // nobody else writes them
  if (data_.tokenizer) {
    TokenizerFiles files = read_tokenizer_files(config_.tokenizer);
    record_.tokenizer = {files.place, data_.tokenizer->fingerprint()};
    attached_ = std::move(files.files);
  }
  if (data_.has_training())
    record_.training_text = {data_.training_tokens(), data_.training_hash()};
  record_.data_ranks = session_->programs().parallelism.data_ranks();
}

void TrainingRun::warn_of_changes(const RunRecord& saved) const {
  if (rank() > 0 || config_.eval_only) return;
  RunRecord now = record_;
  now.schedule = schedule_.state(0);
  if (auto changed = changed_options(saved, now); !changed.empty()) {
    TESSERA_WARN(
        cat("the run goes on with other options than the checkpoint: ", join(changed, "; "),
            ": it is not the run that either set of options would have made"));
  }
  if (auto ignored = ignored_options(saved, now); !ignored.empty()) {
    TESSERA_WARN(
        cat("ignored, since the schedule goes on as in the checkpoint: ", join(ignored, "; ")));
  }
  if (data_.stream) return;  // load_stream_state() has told
  if (std::string text = changed_text(saved, now); !text.empty()) {
    TESSERA_WARN(cat("the training text is not that of the checkpoint (", text,
                     "): training goes on at the same window number, so windows may be seen again "
                     "or not at all"));
  }
}

void TrainingRun::load_stream_state(const fs::path& checkpoint, const RunRecord& saved) {
  if (!data_.stream || config_.eval_only) return;
  const fs::path file = checkpoint / kDataFolder / kStreamName;
  const bool known = std::ranges::any_of(data_.known_stream_hashes(), [&](uint64_t hash) {
    return saved.training_text == TextRecord{data_.training_tokens(), hash};
  });
  if (known && is_stored(file)) {
    stream_state_ = stream_state_from_bytes(read_content(file), data_.stream->sources.size(),
                                            cat("'", file.string(), "'"));
    return;
  }
  if (rank() > 0) return;
  const std::string changed = changed_text(saved, record_);
  TESSERA_WARN(cat("checkpoint '", checkpoint.string(),
                   "' does not say where it was in this stream",
                   changed.empty() ? "" : cat(" (", changed, ")"), ": the data begins anew"));
}

}  // namespace tessera
