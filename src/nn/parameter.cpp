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
  parameter.name = cat(prefix_, prefix_.empty() ? "" : ".", parameter.name, ".weight");
  parameter.unit = unit_;
  parameter.value =
      model_.graph.input(parameter.name, InputKind::kParameter, {parameter.shape, DType::kF32});
  model_.parameters.push_back(parameter);
  return parameter.value;
}

Value ParameterScope::matrix(const std::string& name, int64_t rows, int64_t columns,
                             std::vector<std::string> axes, double standard_deviation) const {
  return declare({name,
                  {},
                  {rows, columns},
                  {},
                  std::move(axes),
                  {InitKind::kNormal, standard_deviation},
                  true});
}

Value ParameterScope::norm_weight(const std::string& name, int64_t width) const {
  return declare({name, {}, {width}, {}, {"embed"}, {InitKind::kOnes, 0}, false});
}

}  // namespace tessera
