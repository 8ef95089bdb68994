#include "nn/parameter.h"

#include <cmath>

namespace tessera {

int64_t ModelGraph::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& p : parameters) count += num_elements(p.shape);
  return count;
}

const Parameter& ModelGraph::parameter(std::string_view name) const {
  for (const Parameter& p : parameters) {
    if (p.name == name) return p;
  }
  throw InternalError(cat("the model has no parameter '", name, "'"));
}

std::string ParameterScope::whole_name(const std::string& name) const {
  return prefix_.empty() ? name : cat(prefix_, ".", name);
}

Value ParameterScope::declare(Parameter parameter) const {
  parameter.name = whole_name(parameter.name);
  parameter.unit = unit_;
  parameter.trainable = parameter.adapter || !model_.adapted();
  parameter.value =
      model_.graph.input(parameter.name, InputKind::kParameter, {parameter.shape, DType::kF32});
  model_.parameters.push_back(parameter);
  return parameter.value;
}

Value ParameterScope::matrix(const std::string& name, Shape shape, std::vector<std::string> axes,
                             double standard_deviation) const {
  return declare({.name = name + ".weight",
                  .shape = std::move(shape),
                  .axes = std::move(axes),
                  .init = {InitKind::kNormal, standard_deviation}});
}

Value ParameterScope::bias(const std::string& name, Shape shape,
                           std::vector<std::string> axes) const {
  return declare({.name = name + ".bias",
                  .shape = std::move(shape),
                  .axes = std::move(axes),
                  .init = {InitKind::kZeros, 0},
                  .decay = false});
}

Value ParameterScope::norm_weight(const std::string& name, int64_t width) const {
  return declare({.name = name + ".weight",
                  .shape = {width},
                  .axes = {"embed"},
                  .init = {InitKind::kOnes, 0},
                  .decay = false});
}

Value ParameterScope::lora_a(const std::string& name, int64_t in,
                             const std::string& in_axis) const {
  const double width = 2 / std::sqrt(static_cast<double>(in));
  return declare({.name = name + ".lora_A.weight",
                  .shape = {model_.lora.rank, in},
                  .axes = {"", in_axis},
                  .init = {InitKind::kUniform, width / std::sqrt(12.0)},
                  .adapter = true});
}

Value ParameterScope::lora_b(const std::string& name, Shape shape,
                             std::vector<std::string> axes) const {
  shape.back() = model_.lora.rank;
  axes.back().clear();
  return declare({.name = name + ".lora_B.weight",
                  .shape = std::move(shape),
                  .axes = std::move(axes),
                  .init = {InitKind::kZeros, 0},
                  .adapter = true});
}

}  // namespace tessera
