// Checkpoints of a training run: which one it resumes from, and those that it writes.
#include "base/file.h"
#include "base/log.h"
#include "train/frozen_parameters.h"
#include "train/option_table.h"
#include "train/training_run.h"

namespace tessera {

// Later a checkpoint that fails is only a warning, so a directory that never worked must stop the
// run here.
void TrainingRun::check_checkpoint_directory() const {
  if (!saves() || config_.eval_only) return;
  try {
    make_directories(config_.checkpoint_dir);
    AtomicFile probe(std::filesystem::path(config_.checkpoint_dir) / "writable");
  } catch (const UserError& error) {
    throw UserError(cat("--checkpoint_dir: ", error.what(),
                        "; give a directory that can be written, or --save_ckpt 0"));
  }
}

std::optional<std::filesystem::path> TrainingRun::find_checkpoint() const {
  if (config_.resume_from_checkpoint.empty()) return {};
  auto found = newest_complete_checkpoint(config_.resume_from_checkpoint);
  if (!found) TESSERA_INFO("No Checkpoints Found");
  return found;
}

void TrainingRun::resume(const std::filesystem::path& checkpoint) {
  const std::string where = checkpoint.string();
  TESSERA_INFO(cat("Loading checkpoint from ", where, " ..."));
  CheckpointReader reader(checkpoint, checkpoint_group());
  RunRecord saved = run_record_from_json(reader.run_json(), (checkpoint / kRunName).string());
  if (saved.mesh != record_.mesh) {
    throw UserError(
        cat("checkpoint '", where, "' was saved with ", saved.mesh, ", this run has ", record_.mesh,
            ": resume with the number of ranks and the sharding that it was saved with"));
  }
  require_same_frozen(session_->programs().parameters, config_, saved.options, where);
  std::vector<TensorBuffer> buffers = session_->checkpoint_buffers();
  reader.load_all(buffers);
  if (std::string difference = model_difference(saved.model, record_.model); !difference.empty()) {
    throw UserError(cat("checkpoint '", where, "' is of another model: ", difference));
  }
  record_.step = saved.step;
  record_.position = saved.position;
  record_.tokens_seen = saved.tokens_seen;
  record_.skipped_in_a_row = saved.skipped_in_a_row;
  if (saved.loss_scale && session_->loss_scale()) session_->set_loss_scale(*saved.loss_scale);
  record_.last_good_checkpoint = saved.skipped_in_a_row == 0 ? where : saved.last_good_checkpoint;
  warn_of_other_data(saved.options);
  for (const std::string& line : schedule_.resume(saved.schedule)) TESSERA_INFO(line);
  last_saved_step_ = record_.step;
  last_saved_path_ = checkpoint;
  TESSERA_INFO(cat("Checkpoint loaded from ", where, "."));
}

// The position in the data is a number of windows in an order that follows from these options.
void TrainingRun::warn_of_other_data(const RunConfig& saved) const {
  std::vector<std::string> changed;
  for (std::string_view option :
       {"seed", "dataset", "training_dir", "tokenizer", "max_context_width"}) {
    std::string before = value_text(saved, *find_option(option)),
                now = value_text(config_, *find_option(option));
    if (before != now) changed.push_back(cat("--", option, " was ", before, " and is ", now));
  }
  if (changed.empty()) return;
  TESSERA_WARN(cat(
      "the data or its order is not that of the checkpoint (", join(changed, "; "),
      "): training goes on at the same window number, so windows may be seen again or not at all"));
}

void TrainingRun::save() {
  record_.schedule = schedule_.state(record_.step);
  record_.loss_scale = session_->loss_scale();
  TESSERA_INFO(cat("Writing checkpoint to ", config_.checkpoint_dir, "/",
                   name(record_.model.model_type), "-", record_.step, "steps."));
  try {
    std::vector<TensorView> views = session_->checkpoint_views();
    // While updates are being skipped nothing is removed: the last good checkpoint may be the next
    // to go.
    int64_t kept = record_.skipped_in_a_row == 0 ? config_.num_kept_checkpoints.value_or(0) : 0;
    auto path = save_checkpoint(config_.checkpoint_dir, name(record_.model.model_type),
                                record_.step, views, to_json(record_), kept, checkpoint_group());
    if (record_.skipped_in_a_row == 0) record_.last_good_checkpoint = path.string();
    last_saved_step_ = record_.step;
    last_saved_path_ = path;
    TESSERA_INFO("Completed checkpoint.");
  } catch (const UserError& error) {
    // A full disk must not end a run: what was saved before is intact, and the next one may fit.
    TESSERA_WARN(cat("Checkpoint failed, training goes on: ", error.what()));
  }
}

}  // namespace tessera
