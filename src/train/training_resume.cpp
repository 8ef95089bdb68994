// What a training run has in common with the one that it goes on from: tokenizer, text, options.
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "hub/tokenizer_files.h"
#include "options/option_record.h"
#include "options/resume_comparison.h"
#include "train/training_run.h"

namespace tessera {
namespace fs = std::filesystem;

// Before any text is read: that takes long, and is wasted with another tokenizer.
void TrainingRun::open_tokenizer(const fs::path& checkpoint) {
  RunRecord saved = run_record_from_json(to_resume_->run_json(), (checkpoint / kRunName).string());
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
  uint64_t mine = data_.tokenizer->fingerprint();
  if (saved.tokenizer->fingerprint == mine) return;
  // Another version of this program may count other things among those that decide the ids.
  std::string own = tokenizer_of(checkpoint, saved);
  uint64_t theirs = load_tokenizer(own)->fingerprint();
  if (theirs == mine) return;
  throw UserError(cat("--tokenizer ", config_.tokenizer,
                      " is another one than that of checkpoint '", checkpoint.string(),
                      "' (fingerprints ", hex(mine), " and ", hex(theirs),
                      "): its ids mean other words to the model. Give --tokenizer ", own));
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
  if (std::string text = changed_text(saved, now); !text.empty()) {
    TESSERA_WARN(cat("the training text is not that of the checkpoint (", text,
                     "): training goes on at the same window number, so windows may be seen again "
                     "or not at all"));
  }
}

}  // namespace tessera
