#include "weights/torch_training_state.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/element_types.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "models/hugging_face_tensor.h"
#include "models/model_family.h"

namespace tessera {
namespace {

// What wrappers of modules put into names: torch.compile, FSDP, recomputation, DDP.
constexpr std::array<std::string_view, 4> kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module", "module"};

// Dicts of the weights themselves, where another one may have averages of them.
constexpr std::string_view kOfTheModel[] = {
    "app", "model", "model_state", "state_dict", "model_state_dict", "state"};

constexpr std::string_view kGroups = "param_groups.";

struct OptimizerKind {
  std::string_view name;
  std::vector<std::string> kept;
};
const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds{
      {"adamw", {"exp_avg", "exp_avg_sq"}}, {"lion", {"exp_avg"}}, {"sgd", {"momentum_buffer"}}};
  return kinds;
}

std::string without_wrappers(std::string_view name) {
  std::vector<std::string_view> kept;
  for (std::string_view part : split(name, '.'))
    if (std::ranges::find(kWrappers, part) == kWrappers.end()) kept.push_back(part);
  return join(kept, ".");
}

int64_t row_width(const Parameter& p) {
  return p.shape.size() < 2 || p.name.ends_with(".bias") ? 1 : p.shape.back();
}

}  // namespace

TorchTrainingState::TorchTrainingState(const std::filesystem::path& path, const ModelConfig& model,
                                       std::vector<Parameter> parameters)
    : state_(path), model_(model), parameters_(std::move(parameters)) {
  for (const auto& [name, tensor] : state_.tensors())
    saved_name_of_.emplace(without_wrappers(name), name);
  find_weights();
}

// What stands before names with this end.
std::vector<std::string> TorchTrainingState::prefixes_of(std::string_view ending) const {
  std::vector<std::string> prefixes;
  for (const auto& [plain, saved] : saved_name_of_) {
    if (!plain.ends_with(ending)) continue;
    std::string prefix = plain.substr(0, plain.size() - ending.size());
    if (prefix.empty() || prefix.ends_with('.')) prefixes.push_back(std::move(prefix));
  }
  return prefixes;
}

const SavedTensor* TorchTrainingState::find(std::string_view plain_name) {
  auto found = saved_name_of_.find(plain_name);
  if (found == saved_name_of_.end()) return nullptr;
  used_.insert(found->second);
  return &state_.tensors().find(found->second)->second;
}

// Of several whole sets of weights, by what stands before them, the one that is the model itself.
std::string TorchTrainingState::chosen_of(const std::vector<std::string>& prefixes) const {
  auto is_plain = [](const std::string& prefix) {
    return std::ranges::all_of(split(prefix, '.'), [](std::string_view word) {
      return word.empty() || std::ranges::find(kOfTheModel, word) != std::end(kOfTheModel);
    });
  };
  std::vector<std::string> names;
  for (const std::string& prefix : prefixes)
    names.push_back(cat("'", prefix, parameters_[0].name, "'"));
  const std::string where =
      cat("'", state_.path().string(), "' has ", prefixes.size(),
          " sets of weights of this model, which begin with ", some_of(names), ": ");
  if (std::ranges::count_if(prefixes, is_plain) != 1)
    throw UserError(cat(where, "which of them is meant is not known; save it without the others"));
  const std::string& chosen = *std::ranges::find_if(prefixes, is_plain);
  TESSERA_INFO(cat(where,
                   chosen.empty() ? "those without anything before their names"
                                  : cat("those of '", chosen.substr(0, chosen.size() - 1), "'"),
                   " are taken"));
  return chosen;
}

void TorchTrainingState::find_weights() {
  std::vector<std::string> missing;  // of the best try
  std::string prefix;
  std::vector<std::string> whole;  // prefixes before which nothing is missing
  bool found = false;
  for (const Naming& naming : namings()) {
    std::vector<std::string> prefixes;
    for (const Place& place : naming.places)
      if (prefixes = prefixes_of(place.name); !prefixes.empty()) break;
    for (const std::string& candidate : prefixes) {
      std::vector<std::string> lacks;
      for (const Place& place : naming.places)
        if (!saved_name_of_.contains(candidate + place.name) &&
            (lacks.empty() || lacks.back() != candidate + place.name))
          lacks.push_back(candidate + place.name);
      if (lacks.empty()) whole.push_back(candidate);
      if (found && lacks.size() >= missing.size()) continue;
      found = true;
      missing = std::move(lacks);
      prefix = candidate;
      naming_ = naming;
    }
    if (found && missing.empty()) break;
  }
  const std::string where = cat("'", state_.path().string(), "'");
  if (!found) {
    throw UserError(cat(where, " has no weights of a ", name(model_.model_type),
                        " model: there is no tensor whose name ends in ", parameters_[0].name,
                        "; is the description of the model that of these weights?"));
  }
  if (!missing.empty()) {
    throw UserError(
        cat("the weights in ", where, " do not fit this ", name(model_.model_type),
            " model: ", missing.size(), missing.size() == 1 ? " tensor is" : " tensors are",
            " missing: ", some_of(missing), "; is its description that of these weights?"));
  }
  if (whole.size() > 1) prefix = chosen_of(whole);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const HuggingFaceTensor there = hugging_face_tensor(model_.model_type, parameters_[i]);
    if (!there.transposed || there.shape[0] == there.shape[1]) continue;
    const Shape turned{there.shape[1], there.shape[0]};
    naming_.transposed = find(prefix + naming_.places[i].name)->shape != turned;
    break;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = prefix + naming_.places[i].name;
    const SavedTensor* tensor = find(name);
    check_shape(name, *tensor, parameters_[i], naming_.places[i]);
    weights_[parameters_[i].name] = tensor;
  }
  const TensorNames& family = model_family(model_.model_type).tensors;
  for (const auto& [plain, saved] : saved_name_of_) {
    bool buffer = std::ranges::any_of(
        family.buffers, [&plain = plain](std::string_view end) { return plain.ends_with(end); });
    if (buffer) used_.insert(saved);
  }
  // The output matrix may be there under two names. Of a model with one matrix for both ends they
  // have the same, or are not of this model.
  std::vector<std::string> heads{naming_.head};
  if (!family.output_in_memory.empty())
    heads.emplace_back(naming_.head == family.output ? family.output_in_memory : family.output);
  for (const std::string& head : heads) {
    if (!weights_.contains(family.output)) check_tied_head(prefix + head);
    for (const auto& [plain, saved] : saved_name_of_) {
      const bool kept = plain.find(cat("state.", head, ".")) != plain.npos;
      if (head != naming_.head && (kept || plain == prefix + head)) used_.insert(saved);
    }
  }
  refuse_other_weights(prefix);
}

// Weights beside those of the model are of a deeper one, or of one with biases: without them it
// would be another function.
void TorchTrainingState::refuse_other_weights(std::string_view prefix) const {
  auto module = [](std::string_view name) { return name.substr(0, name.find('.')); };
  std::set<std::string_view> modules{module(naming_.head)};
  for (const Place& place : naming_.places) modules.insert(module(place.name));
  std::vector<std::string> extra;
  for (const auto& [plain, saved] : saved_name_of_) {
    if (!plain.starts_with(prefix) || used_.contains(saved)) continue;
    const std::string_view name = std::string_view(plain).substr(prefix.size());
    if (modules.contains(module(name)) && (name.ends_with(".weight") || name.ends_with(".bias")))
      extra.push_back(plain);
  }
  if (extra.empty()) return;
  throw UserError(
      cat("the weights in '", state_.path().string(), "' do not fit this ", name(model_.model_type),
          " model: ", extra.size(), extra.size() == 1 ? " tensor is" : " tensors are",
          " not part of it: ", some_of(extra), "; is its description that of these weights?"));
}

void TorchTrainingState::check_tied_head(const std::string& head) {
  const SavedTensor* other = find(head);
  if (!other) return;
  const TensorNames& family = model_family(model_.model_type).tensors;
  const SavedTensor& embedding = *weights_.find(family.embedding)->second;
  bool equal = other->dtype == embedding.dtype && other->shape == embedding.shape;
  const int64_t rows = equal ? embedding.shape[0] : 0, width = equal ? embedding.shape[1] : 1;
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 20) / width);
  std::vector<std::byte> a, b;
  for (int64_t row = 0; equal && row < rows; row += step) {
    check_interruption();
    const TensorBox box{{row, 0}, {std::min(step, rows - row), width}};
    a.resize(static_cast<size_t>(box.elements() * size_of(*embedding.dtype)));
    b.resize(a.size());
    embedding.read(box, a);
    other->read(box, b);
    equal = a == b;
  }
  if (equal) return;
  throw UserError(
      cat("tensor '", head, "' in '", state_.path().string(),
          "' differs from the embedding, but the model has one matrix for both; for a "
          "model with two give --tie_word_embeddings 0, or a config.json that says so"));
}

// Matrices may be stacked here, and are one there.
void TorchTrainingState::check_shape(const std::string& name, const SavedTensor& tensor,
                                     const Parameter& p, const Place& place) const {
  auto [wanted, transposed] = hugging_face_tensor(model_.model_type, p);
  if (transposed && !naming_.transposed) std::swap(wanted[0], wanted[1]);
  if (place.rows > 0) wanted[0] = place.rows;
  if (tensor.shape == wanted && tensor.dtype && is_weight_dtype(*tensor.dtype)) return;
  throw UserError(cat("tensor '", name, "' in '", state_.path().string(), "' is ",
                      tensor.element_type, " ", to_string(tensor.shape),
                      ", the model needs f32, bf16 or f16 ", to_string(wanted)));
}

TorchTrainingState::Optimizer TorchTrainingState::find_optimizer() {
  const std::string where = cat("'", state_.path().string(), "'");
  Optimizer optimizer;
  auto ending = [&](size_t i, std::string_view kind) {
    return cat("state.", kept_place(i).name, ".", kind);
  };
  for (size_t i = 0; optimizer.name.empty() && i < parameters_.size(); ++i) {
    for (const OptimizerKind& kind : optimizer_kinds()) {
      std::vector<std::string> prefixes = prefixes_of(ending(i, kind.kept[0]));
      if (prefixes.empty()) continue;
      if (kind.kept.size() > 1 && prefixes_of(ending(i, kind.kept[1])).empty()) continue;
      optimizer.name = kind.name;
      optimizer.kinds = kind.kept;
      optimizer_prefix_ = prefixes[0];
      break;
    }
  }
  if (optimizer.name.empty() && !prefixes_of("state.0.exp_avg").empty()) {
    throw UserError(cat("the optimizer in ", where, " knows its parameters by numbers, which mean ",
                        "nothing without the program that saved it: save it by names ",
                        "(torch.distributed.checkpoint.state_dict.get_optimizer_state_dict)"));
  }
  if (optimizer.name.empty()) {
    throw UserError(cat(where, " has weights, but nothing that an optimizer keeps (no exp_avg): ",
                        "start from its weights with --finetune 1 --pretrained_checkpoint_file ",
                        state_.path().string()));
  }
  std::vector<bool> trained(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    size_t there = 0;
    for (const std::string& kind : optimizer.kinds) {
      const std::string name = optimizer_prefix_ + ending(i, kind);
      const SavedTensor* tensor = find(name);
      if (!tensor) continue;
      ++there;
      check_shape(name, *tensor, parameters_[i], kept_place(i));
      kept_[cat(parameters_[i].name, ".", kind)] = tensor;
    }
    if (there != 0 && there != optimizer.kinds.size()) {
      throw UserError(cat(where, " has only a part of what the optimizer keeps of ",
                          parameters_[i].name, ": of ", join(optimizer.kinds, ", ")));
    }
    trained[i] = there > 0;
    if (!trained[i]) optimizer.frozen.push_back(parameters_[i].name);
  }
  optimizer.steps = steps_of(cat(optimizer_prefix_, "state."), trained);
  return optimizer;
}

int64_t TorchTrainingState::steps_of(const std::string& prefix, const std::vector<bool>& trained) {
  std::optional<double> steps;
  std::string first;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    check_interruption();
    const std::string plain = cat(prefix, kept_place(i).name, ".step");
    auto saved = saved_name_of_.find(plain);
    if (saved != saved_name_of_.end()) used_.insert(saved->second);
    auto numbers = state_.numbers(saved != saved_name_of_.end() ? saved->second : plain);
    if (!trained[i] || !numbers || numbers->size() != 1) continue;
    if (steps && *steps != (*numbers)[0]) {
      throw UserError(cat("the optimizer in '", state_.path().string(), "' has updated ", first,
                          " ", *steps, " times and ", parameters_[i].name, " ", (*numbers)[0],
                          " times: tessera counts the updates of all together"));
    }
    if (!steps) first = parameters_[i].name;
    steps = (*numbers)[0];
  }
  // Some optimizers count nothing, their programs do.
  for (const char* name : {"step", "total_steps", "train_state.step"}) {
    auto count = take_count(name);
    if (!steps && count) steps = static_cast<double>(*count);
  }
  constexpr double kMost = 1e15;
  if (!steps || !(*steps >= 1 && *steps < kMost)) {
    throw UserError(cat("'", state_.path().string(), "' does not say how many steps were done: ",
                        prefix, parameters_[0].name, ".step should be a number above 0"));
  }
  return static_cast<int64_t>(*steps);
}

std::vector<std::vector<double>> TorchTrainingState::settings(std::string_view name) const {
  std::vector<std::vector<double>> values;
  const std::string begin = cat(optimizer_prefix_, kGroups), end = cat(".", name);
  auto add = [&](const std::string& item) {
    if (!item.starts_with(begin) || !item.ends_with(end)) return;
    auto numbers = state_.numbers(item);
    if (numbers && std::ranges::find(values, *numbers) == values.end()) values.push_back(*numbers);
  };
  for (const std::string& item : state_.items()) add(item);
  for (const auto& [tensor, about] : state_.tensors()) add(tensor);
  return values;
}

std::optional<int64_t> TorchTrainingState::take_count(const std::string& name) {
  constexpr double kMost = 1e15;
  auto numbers = state_.numbers(name);
  if (!numbers || numbers->size() != 1 || !((*numbers)[0] >= 1 && (*numbers)[0] < kMost)) return {};
  used_.insert(name);
  return static_cast<int64_t>((*numbers)[0]);
}

std::vector<std::string> TorchTrainingState::left_out() const {
  std::vector<std::string> names;
  const std::string groups = cat(optimizer_prefix_, kGroups),
                    steps = cat(optimizer_prefix_, "state.");
  auto add = [&](const std::string& name) {
    const bool step = name.starts_with(steps) && name.ends_with(".step");
    if (!used_.contains(name) && !name.starts_with(groups) && !step) names.push_back(name);
  };
  for (const auto& [name, tensor] : state_.tensors()) add(name);
  for (const std::string& name : state_.items()) add(name);
  return names;
}

bool is_training_state(const std::filesystem::path& path, ModelType family) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return is_torch_checkpoint(path);
  if (are_xla_shards(path)) return true;
  if (is_meta_llama(path) || !looks_like_torch_file(path)) return false;
  const TensorNames& names = model_family(family).tensors;
  const TorchFile content(path);
  return !content.archive().find(names.embedding) &&
         !content.archive().find(names.embedding.substr(names.prefix.size()));
}

const Parameter& TorchTrainingState::parameter(std::string_view name) const {
  auto found = std::ranges::find(parameters_, name, &Parameter::name);
  TESSERA_CHECK(found != parameters_.end(), cat("the model has no '", name, "'"));
  return *found;
}

const TorchTrainingState::Place& TorchTrainingState::kept_place(size_t i) const {
  return naming_.kept.empty() ? naming_.places[i] : naming_.kept[i];
}

size_t TorchTrainingState::number_of(const Parameter& p) const {
  return static_cast<size_t>(&p - parameters_.data());
}

void TorchTrainingState::read(std::string_view name, int64_t first, std::span<float> values) const {
  const Parameter& p = parameter(name);
  read(*weights_.find(name)->second, p, naming_.places[number_of(p)], first, values);
}

void TorchTrainingState::read_kept(std::string_view kind, std::string_view name, int64_t first,
                                   std::span<float> values) const {
  const Parameter& p = parameter(name);
  read(*kept_.find(cat(name, ".", kind))->second, p, kept_place(number_of(p)), first, values);
}

void TorchTrainingState::read(const SavedTensor& tensor, const Parameter& p, const Place& place,
                              int64_t first, std::span<float> values) const {
  const auto size = static_cast<size_t>(size_of(*tensor.dtype));
  std::vector<std::byte> bytes;
  auto read_box = [&](const TensorBox& box, std::span<float> out) {
    bytes.resize(out.size() * size);
    tensor.read(box, bytes);
    to_f32(*tensor.dtype, bytes.data(), out);
  };
  const auto last = first + static_cast<int64_t>(values.size());
  const int64_t width = row_width(p);
  const bool transposed =
      naming_.transposed && hugging_face_tensor(model_.model_type, p).transposed;
  if (!transposed && !place.interleaved && place.run == 0) {
    const int64_t begin = place.first_row * width + first;
    for (const TensorBox& box : boxes_of_range(tensor.shape, begin, last - first)) {
      read_box(box, values.first(static_cast<size_t>(box.elements())));
      values = values.subspan(static_cast<size_t>(box.elements()));
    }
    return;
  }
  std::vector<float> rows;
  const int64_t top = first / width, bottom = (last + width - 1) / width;
  if (transposed) {  // rows here are columns there
    const int64_t count = bottom - top;
    rows.resize(static_cast<size_t>(count * width));
    read_box({{0, top}, {width, count}}, rows);
    for (int64_t e = first; e < last; ++e)
      values[static_cast<size_t>(e - first)] =
          rows[static_cast<size_t>(e % width * count + e / width - top)];
    return;
  }
  const int64_t head = model_.head_dim, half = head / 2;
  rows.resize(static_cast<size_t>(width));
  for (int64_t row = top; row < bottom; ++row) {
    const int64_t in_head = row % head;
    const int64_t there =
        place.row(place.interleaved ? row - in_head + in_head % half * 2 + in_head / half : row);
    if (tensor.shape.size() == 1)
      read_box({{there}, {1}}, rows);
    else
      read_box({{there, 0}, {1, width}}, rows);
    const int64_t begin = std::max(first, row * width), end = std::min(last, (row + 1) * width);
    std::copy(rows.begin() + (begin - row * width), rows.begin() + (end - row * width),
              values.begin() + (begin - first));
  }
}

}  // namespace tessera
