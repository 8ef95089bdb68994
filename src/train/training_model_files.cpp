// The models of a training run: pretrained weights at its beginning, the finished model at its end.
#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "checkpoint/checkpoint.h"
#include "options/pretrained_source.h"
#include "train/training_run.h"
#include "weights/checkpoint_parameters.h"
#include "weights/model_export.h"
#include "weights/model_weights.h"
#include "weights/tokenizer_export.h"
#include "weights/torch_training_state.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// The weights of a job of one rank.
class SessionParameters : public ParameterSource {
 public:
  explicit SessionParameters(const Session& session) : session_(session) {}
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    session_.read_parameter(std::string(parameter), first, values);
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}

 private:
  const Session& session_;
};

}  // namespace

void TrainingRun::open_pretrained() {
  const bool adapted = record_.model.lora.rank > 0;
  if (!config_.lora_adapter.empty()) {
    adapter_ = std::make_unique<AdapterWeights>(config_.lora_adapter, record_.model,
                                                session_->programs().parameters);
  }
  auto path = find_pretrained_weights(config_);
  if (!path && adapted && rank() == 0)
    TESSERA_WARN(
        "there are no pretrained weights: the adapters are trained for a model of random weights "
        "(give --hf_pretrained_model_name_or_dir)");
  if (!path) {
    record_.base_model = "";
    return;
  }
  record_.base_model = base_model_of(record_);
  ModelType family = record_.model.model_type;
  std::vector<Parameter> parameters = base_parameters(session_->programs().parameters);
  if (is_training_state(*path, family)) {
    pretrained_ = std::make_unique<TorchTrainingState>(*path, record_.model, std::move(parameters));
  } else {
    pretrained_ = std::make_unique<PretrainedWeights>(*path, family_names(family),
                                                      file_tensors(family, parameters));
  }
  pretrained_path_ = path->string();
}

// All of them from random numbers, but for those that are in files.
void TrainingRun::load_weights() {
  const Programs& programs = session_->programs();
  const auto seed = static_cast<uint64_t>(config_.seed);
  std::vector<ParameterTarget> base = weight_targets(programs, session_->state_to_write(), rank()),
                               adapters;
  for (const Parameter& p : adapter_parameters(programs.parameters)) {
    auto own = std::ranges::find(base, p.name, &ParameterTarget::parameter);
    adapters.push_back(std::move(*own));
    base.erase(own);
  }
  if (pretrained_) {
    TESSERA_INFO(cat("Loading weights from ", pretrained_path_, " ..."));
    copy_parameters(*pretrained_, base, *device_.pool);
    pretrained_.reset();
    session_->initialize_adapters(seed, *device_.pool);
  } else {
    session_->initialize(seed, *device_.pool);
  }
  if (!adapter_) return;
  TESSERA_INFO(cat("Loading adapters from ", config_.lora_adapter, " ..."));
  copy_parameters(*adapter_, adapters, *device_.pool);
  adapter_.reset();
}

fs::path TrainingRun::model_directory() const {
  fs::path path = config_.model_dir.empty() ? fs::path(config_.checkpoint_dir[0]) / "model"
                                            : fs::path(config_.model_dir);
  return path.has_filename() ? path : path.parent_path();  // others stand beside it
}

// Of ranks that have no checkpoint of all of them.
fs::path TrainingRun::pieces_directory() const { return model_directory() += ".pieces"; }

// In which all ranks can put what rank 0 makes a model of.
void TrainingRun::require_same_directory(const fs::path& directory) const {
  std::unique_ptr<CheckpointLock> lock;
  const std::string token = on_first_rank("mark of the directory for --save_final_model", [&] {
    lock = lock_checkpoints(directory, {origin_.job, device_.attempt});
    return lock->token();
  });
  const std::string another = who_sees_another(directory, token);
  if (!another.empty()) {
    throw UserError(cat("--save_final_model: ", another, ", and ranks write their parts there: ",
                        "give a --model_dir, or a --checkpoint_dir, that all hosts share"));
  }
}

// Before anything is trained.
void TrainingRun::check_final_model() const {
  if (!config_.save_final_model || config_.eval_only) return;
  hugging_face_model_type(record_.model.model_type);
  check_export_directory(model_directory(), record_.model.lora.rank > 0);
  if (rank() == 0) {
    try {
      check_can_be_written(model_directory());
    } catch (const UserError& error) {
      throw UserError(cat("--save_final_model cannot write to --model_dir '",
                          model_directory().string(), "': ", error.what()));
    }
  }
  if (world_size() > 1 && std::ranges::all_of(tiers_, &Tier::apart))
    require_same_directory(pieces_directory());
  if (record_.model.lora.rank > 0) return;  // the adapters alone
  const RunConfig defaults;
  const bool named = !config_.tokenizer.empty() && config_.tokenizer != defaults.tokenizer;
  if (!named && !is_tokenizer_there(config_) && !data_need_tokenizer(config_)) return;
  check_tokenizer_export(config_.tokenizer, *load_tokenizer(config_.tokenizer),
                         record_.model.model_type);
}

// Of several ranks the pieces are on disk first: in the last checkpoint, where it is one of all
// hosts, or in one for this purpose.
void TrainingRun::save_final_model() {
  // The tokenizer as it was when the run began: its files may have gone since.
  auto write = [&](const ParameterSource& weights) {
    TemporaryDirectory kept(model_directory() += cat(".tmp-", unique_suffix()));
    write_attached(kept.path(), attached_);
    ExportOptions options;
    options.dtype = dtype_from_name(config_.dtype);
    if (record_.tokenizer) options.tokenizer = tokenizer_of(kept.path(), record_);
    options.chat_template = record_.options.chat_template;
    options.base_model = base_model_of(record_);
    export_trained(model_directory(), record_.model, weights, options);
  };
  if (world_size() == 1) return write(SessionParameters(*session_));
  fs::path pieces, scratch = pieces_directory();
  for (const Tier& tier : tiers_) {
    if (pieces.empty() && !tier.apart && tier.last_saved_step == record_.step)
      pieces = tier.last_saved_path;
  }
  if (pieces.empty()) {
    StateFiles files(session_->weight_boxes(), rank(), world_size());
    auto write_files = [&](const fs::path& to) { return files.write(to); };
    CheckpointContent content{std::string(name(record_.model.model_type)), record_.step,
                              write_files, to_json(record_)};
    pieces = save_checkpoint(scratch, content, 0, checkpoint_group());
  }
  on_first_rank("export of the model", [&] {
    write(CheckpointParameters(pieces));
    std::error_code ignored;
    if (pieces.parent_path() == scratch) fs::remove_all(pieces, ignored);
    fs::remove(scratch, ignored);  // where nothing else is in it
    return std::string();
  });
}

}  // namespace tessera
