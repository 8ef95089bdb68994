#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"
#include "checkpoint/state_files.h"
#include "hub/tokenizer_files.h"
#include "models/build_model.h"
#include "programs/programs.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint_conversion.h"
#include "weights/torch_training_state.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr double kEpsilon = 1e-8;  // of this program's AdamW

// A directory that was made for a checkpoint, and goes again if none came to be there.
class NewDirectory {
 public:
  explicit NewDirectory(fs::path path) : path_(std::move(path)) {
    was_there_ = is_there(path_);
    std::error_code ignored;
    if (fs::is_directory(path_, ignored)) remove_leftovers(path_);
    if (was_there_ && !(fs::is_directory(path_, ignored) && fs::is_empty(path_, ignored))) {
      throw UserError(cat("'", path_.string(), "' is there and not empty: give a new directory"));
    }
  }
  ~NewDirectory() {
    std::error_code ignored;
    if (!was_there_ && !keeps_) fs::remove(path_, ignored);  // only if it is empty
  }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;
  void keep() { keeps_ = true; }

 private:
  fs::path path_;
  bool was_there_ = false, keeps_ = false;
};

// What a state says of the settings of its optimizer, as options of this program.
class Settings {
 public:
  Settings(const TorchTrainingState& state, ConvertedCheckpoint& result)
      : state_(state), result_(result) {}

  void apply(const TorchTrainingState::Optimizer& optimizer) {
    RunConfig& config = result_.record.options;
    config.optimizer = optimizer.name;
    config.freeze = optimizer.frozen;
    if (optimizer.name != "adamw") add(cat("--optimizer ", optimizer.name));
    // Of a run with a schedule the rate of the moment is not the one that was asked for.
    auto peak = one("initial_lr"), rate = one("lr");
    if (peak || rate) {
      config.lr = (peak ? peak : rate)->at(0);
      add(cat("--lr ", config.lr));
    }
    if (peak && rate && *peak != *rate)
      result_.warnings.push_back(cat("the rate of the next step was ", rate->at(0),
                                     ", by a schedule that is not taken over"));
    if (auto betas = one("betas"); betas && betas->size() == 2) {
      config.beta1 = betas->at(0);
      config.beta2 = betas->at(1);
      add(cat("--beta1 ", config.beta1, " --beta2 ", config.beta2));
    }
    if (auto momentum = one("momentum"); momentum && optimizer.name == "sgd") {
      config.momentum = momentum->at(0);
      add(cat("--momentum ", config.momentum));
    }
    apply_decay();
    warn_of_others();
    if (!optimizer.frozen.empty()) add(cat("--freeze '", join(optimizer.frozen, ","), "'"));
  }

 private:
  void add(std::string option) { result_.options.push_back(std::move(option)); }
  void warn(std::string text) { result_.warnings.push_back(std::move(text)); }

  // The value of a setting, of which there should be one.
  std::optional<std::vector<double>> one(std::string_view name) {
    std::vector<std::vector<double>> values = state_.settings(name);
    std::erase_if(values, [](const auto& v) { return v.empty(); });
    if (values.empty()) return {};
    if (values.size() > 1) {
      std::vector<std::string> texts;
      for (const auto& value : values) texts.push_back(join(value, " "));
      warn(cat("the groups of parameters have different ", name, " (", join(texts, ", "),
               "), tessera has one: the first is taken"));
    }
    return values[0];
  }

  // Groups without decay are taken to be those of norms and biases.
  void apply_decay() {
    RunConfig& config = result_.record.options;
    std::vector<double> values;
    bool without = false;
    for (const auto& value : state_.settings("weight_decay")) {
      if (value.size() != 1) continue;
      without = without || value[0] == 0;
      if (value[0] != 0) values.push_back(value[0]);
    }
    if (values.empty() && !without) return;
    config.weight_decay = values.empty() ? 0 : values[0];
    config.decay_all = !values.empty() && !without;
    add(cat("--weight_decay ", config.weight_decay, config.decay_all ? " --decay_all 1" : ""));
    if (!values.empty() && without)
      warn("one group of parameters does not decay: here norms and biases do not");
    if (values.size() > 1)
      warn("the groups of parameters have different weight_decay, tessera has one");
  }

  void warn_of_others() {
    if (auto eps = one("eps"); eps && eps->at(0) != kEpsilon)
      warn(cat("its eps is ", eps->at(0), ", tessera's is ", kEpsilon));
    for (const char* name : {"amsgrad", "maximize", "nesterov"}) {
      if (auto value = one(name); value && value->at(0) != 0)
        warn(cat("it was trained with ", name, ", which tessera does not have"));
    }
    auto decoupled = one("decoupled_weight_decay");
    if (decoupled && decoupled->at(0) == 0 && result_.record.options.weight_decay > 0)
      warn("its weight decay was a part of the gradient (Adam), tessera's is decoupled (AdamW)");
  }

  const TorchTrainingState& state_;
  ConvertedCheckpoint& result_;
};

class StateWriter {
 public:
  StateWriter(const TorchTrainingState& state, const TorchTrainingState::Optimizer& optimizer,
              ConversionProgress progress)
      : state_(state), optimizer_(optimizer), progress_(std::move(progress)) {
    add_parameters();
    add_counters();
  }

  Manifest write(const fs::path& directory) const {
    return StateFiles(boxes_, 0, 1).write(directory);
  }

 private:
  using Elements = std::function<void(int64_t first, std::span<float> values)>;

  void add(std::string name, TensorRole role, const Shape& shape, Elements elements) {
    auto read = [this, elements = std::move(elements)](uint64_t offset, std::span<std::byte> to) {
      check_interruption();
      values_.resize(to.size() / sizeof(float));
      elements(static_cast<int64_t>(offset / sizeof(float)), values_);
      std::ranges::copy(std::as_bytes(std::span(values_)), to.begin());
      done_ += static_cast<int64_t>(to.size());
      if (progress_) progress_(done_, total_);
    };
    total_ += num_elements(shape) * static_cast<int64_t>(sizeof(float));
    boxes_.push_back(
        {std::move(name), role, DType::kF32, shape, whole_box(shape), TensorBytes::Read(read)});
  }

  void add_parameters() {
    for (const Parameter& p : state_.parameters()) {
      add(p.name, TensorRole::kWeight, p.shape, [this, &p](int64_t first, std::span<float> values) {
        state_.read(p.name, first, values);
      });
      if (std::ranges::find(optimizer_.frozen, p.name) != optimizer_.frozen.end()) continue;
      for (const std::string& kind : optimizer_.kinds) {
        add(cat("optim.state.", p.name, ".", kind), TensorRole::kMoment, p.shape,
            [this, &p, &kind](int64_t first, std::span<float> values) {
              state_.read_kept(kind, p.name, first, values);
            });
      }
      add(cat("optim.state.", p.name, ".step"), TensorRole::kCounter, {},
          [this](int64_t, std::span<float> values) {
            values[0] = static_cast<float>(optimizer_.steps);
          });
    }
  }
  void add_counters() {
    boxes_.push_back(
        {kOptimizerStep, TensorRole::kCounter, DType::kI64, {}, {}, &optimizer_.steps});
  }

  const TorchTrainingState& state_;
  const TorchTrainingState::Optimizer& optimizer_;
  ConversionProgress progress_;
  std::vector<StateBox> boxes_;
  int64_t total_ = 0;
  mutable int64_t done_ = 0;
  mutable std::vector<float> values_;
};

}  // namespace

ConvertedCheckpoint convert_from_torch(const FromTorch& job) {
  NewDirectory to(job.to);
  TorchTrainingState state(job.from, job.model,
                           build_model(job.model, 1, 1, ModelHead::kLoss).parameters);
  const TorchTrainingState::Optimizer optimizer = state.find_optimizer();
  ConvertedCheckpoint result;
  RunRecord& record = result.record;
  record.options = job.config;
  Settings(state, result).apply(optimizer);
  record.converted_from = fs::absolute(job.from).string();
  record.step = optimizer.steps;
  record.position = job.position;
  for (const char* name : {"tokens_seen", "train_state.ntokens_seen"})
    if (auto tokens = state.take_count(name)) record.tokens_seen = *tokens;
  result.left_out = state.left_out();
  for (const Parameter& p : state.parameters()) record.parameter_count += num_elements(p.shape);
  record.model = job.model;
  TokenizerFiles tokenizer;
  record.options.tokenizer = job.tokenizer;
  if (!job.tokenizer.empty()) {
    tokenizer = read_tokenizer_files(job.tokenizer);
    record.tokenizer = {tokenizer.place, load_tokenizer(job.tokenizer)->fingerprint()};
  }
  record.schedule = Schedule({.lr = record.options.lr}).state(record.step);
  const StateWriter writer(state, optimizer, job.progress);
  CheckpointContent content{std::string(name(job.model.model_type)),
                            record.step,
                            [&](const fs::path& directory) { return writer.write(directory); },
                            to_json(record),
                            {random_id(), random_id()},
                            std::move(tokenizer.files)};
  result.path = save_checkpoint(job.to, content);
  to.keep();
  return result;
}

}  // namespace tessera
