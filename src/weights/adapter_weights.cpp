#include "weights/adapter_weights.h"

#include <algorithm>

#include "models/peft_config.h"
#include "weights/model_weights.h"

namespace tessera {
namespace {

constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

FamilyNames peft_names(ModelType family) {
  return {.model_type = name(family),
          .prefix = kPeftPrefix,
          .embedding = {},
          .head = {},
          .buffers = {}};
}

std::vector<Parameter> parameters_where(const std::vector<Parameter>& parameters, bool adapter) {
  std::vector<Parameter> chosen;
  std::ranges::copy_if(parameters, std::back_inserter(chosen),
                       [&](const Parameter& p) { return p.adapter == adapter; });
  return chosen;
}

bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(kA) || parameter.ends_with(kB);
}

}  // namespace

std::vector<Parameter> base_parameters(const std::vector<Parameter>& parameters) {
  return parameters_where(parameters, false);
}

std::vector<Parameter> adapter_parameters(const std::vector<Parameter>& parameters) {
  return parameters_where(parameters, true);
}

std::vector<FileTensor> adapter_tensors(ModelType family,
                                        const std::vector<Parameter>& parameters) {
  std::vector<FileTensor> tensors = file_tensors(family, adapter_parameters(parameters));
  for (FileTensor& tensor : tensors) tensor.name = cat(kPeftPrefix, tensor.name);
  return tensors;
}

AdapterWeights::AdapterWeights(const std::filesystem::path& directory, const ModelConfig& model,
                               const std::vector<Parameter>& parameters)
    : weights_(directory / kPeftWeightsName, peft_names(model.model_type),
               adapter_tensors(model.model_type, parameters)) {}

void AdapterWeights::read(std::string_view parameter, int64_t first,
                          std::span<float> values) const {
  weights_.read(cat(kPeftPrefix, parameter), first, values);
}

void AdapterWeights::advise(std::string_view parameter, int64_t first, int64_t count,
                            Advice advice) const {
  weights_.advise(cat(kPeftPrefix, parameter), first, count, advice);
}

void AdaptedWeights::read(std::string_view parameter, int64_t first,
                          std::span<float> values) const {
  (is_adapter(parameter) ? *adapters_ : *base_).read(parameter, first, values);
}

void AdaptedWeights::advise(std::string_view parameter, int64_t first, int64_t count,
                            Advice advice) const {
  (is_adapter(parameter) ? *adapters_ : *base_).advise(parameter, first, count, advice);
}

MergedWeights::MergedWeights(const ParameterSource& source, const ModelConfig& model,
                             const std::vector<Parameter>& parameters)
    : source_(source), lora_(model.lora) {
  for (const Parameter& p : parameters) {
    if (!p.adapter || !p.name.ends_with(kB)) continue;
    std::string layer = p.name.substr(0, p.name.size() - kB.size());
    auto a = std::ranges::find(parameters, layer + std::string(kA), &Parameter::name);
    TESSERA_CHECK(a != parameters.end(), layer);
    adapted_[layer + ".weight"] = {a->shape.back(), num_elements(p.shape) / lora_.rank};
  }
}

std::shared_ptr<const MergedWeights::Factors> MergedWeights::factors_of(
    const std::string& matrix, const Shapes& shapes) const {
  std::lock_guard lock(mutex_);
  if (last_ && last_->matrix == matrix) return last_;
  auto factors = std::make_shared<Factors>();
  factors->matrix = matrix;
  factors->a.resize(static_cast<size_t>(lora_.rank * shapes.in));
  factors->b.resize(static_cast<size_t>(shapes.out * lora_.rank));
  std::string layer = matrix.substr(0, matrix.size() - std::string_view(".weight").size());
  source_.read(layer + std::string(kA), 0, factors->a);
  source_.read(layer + std::string(kB), 0, factors->b);
  last_ = factors;
  return last_;
}

void MergedWeights::read(std::string_view parameter, int64_t first, std::span<float> values) const {
  source_.read(parameter, first, values);
  auto found = adapted_.find(parameter);
  if (found == adapted_.end()) return;
  const auto& [name, shapes] = *found;
  const std::shared_ptr<const Factors> factors = factors_of(name, shapes);
  const auto in = static_cast<size_t>(shapes.in), rank = static_cast<size_t>(lora_.rank);
  const auto scale = static_cast<float>(lora_.scale());
  std::vector<float> added(in);
  const auto begin = static_cast<size_t>(first), end = begin + values.size();
  for (size_t row = begin / in; row * in < end; ++row) {
    // Columns [from, to) of the row are wanted.
    size_t from = std::max(begin, row * in) - row * in, to = std::min(end - row * in, in);
    std::fill(added.begin(), added.end(), 0.0f);
    for (size_t k = 0; k < rank; ++k) {
      const float b = factors->b[row * rank + k];
      const float* a = factors->a.data() + k * in;
      for (size_t c = from; c < to; ++c) added[c] += b * a[c];
    }
    for (size_t c = from; c < to; ++c) values[row * in + c - begin] += scale * added[c];
  }
}

void MergedWeights::advise(std::string_view parameter, int64_t first, int64_t count,
                           Advice advice) const {
  source_.advise(parameter, first, count, advice);
}

}  // namespace tessera
