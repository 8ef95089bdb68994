#include "nn/layers.h"

#include <optional>

#include "ops/composite/layer_norm.h"
#include "ops/composite/linear.h"
#include "ops/composite/rms_norm.h"

namespace tessera {

Value linear_layer(const ParameterScope& p, const std::string& name, Value x, int64_t out,
                   const MatrixAxes& axes, double standard_deviation, bool bias) {
  Graph& g = p.graph();
  int64_t in = g.shape(x).back();
  Value w = p.matrix(name, {out, in}, {axes.out, axes.in}, standard_deviation);  // [out, in]
  std::optional<Value> b;
  if (bias) b = p.bias(name, {out}, {axes.out});  // [out]
  return linear(g, x, w, b);                      // [..., out]
}

Value rms_norm_layer(const ParameterScope& p, const std::string& name, Value x, double epsilon) {
  Graph& g = p.graph();
  Scope scope(g, name);
  return rms_norm(g, x, p.norm_weight(name, g.shape(x).back()), epsilon);  // [..., in]
}

Value layer_norm_layer(const ParameterScope& p, const std::string& name, Value x, double epsilon,
                       bool bias) {
  Graph& g = p.graph();
  Scope scope(g, name);
  int64_t width = g.shape(x).back();
  Value w = p.norm_weight(name, width);  // [in]
  std::optional<Value> b;
  if (bias) b = p.bias(name, {width}, {"embed"});  // [in]
  return layer_norm(g, x, w, b, epsilon);          // [..., in]
}

}  // namespace tessera
