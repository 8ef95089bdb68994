#include "nn/parameter.h"

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

Value ParameterScope::declare(Parameter parameter) const {
  if (!prefix_.empty()) parameter.name = cat(prefix_, ".", parameter.name);
  parameter.unit = unit_;
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

}  // namespace tessera
