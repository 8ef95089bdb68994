#include "nn/layers.h"

#include <optional>

#include "ops/composite/dropout.h"
#include "ops/composite/layer_norm.h"
#include "ops/composite/linear.h"
#include "ops/composite/rms_norm.h"
#include "ops/composite/scale.h"
#include "ops/primitive/elementwise.h"

namespace tessera {

Value linear_layer(const ParameterScope& p, const std::string& name, Value x, int64_t out,
                   const MatrixAxes& axes, double standard_deviation, bool bias) {
  int64_t in = p.graph().shape(x).back();
  auto whole = [](Value tensor) { return std::vector{tensor}; };
  return FusedLinear(p, name, x, {out, in}, {axes.out, axes.in}, standard_deviation, bias,
                     whole)(0);  // [..., out]
}

FusedLinear::FusedLinear(const ParameterScope& p, const std::string& name, Value x,
                         const Shape& shape, const std::vector<std::string>& axes,
                         double standard_deviation, bool bias, const Parts& parts)
    : graph_(p.graph()), name_(name), x_(x) {
  ModelGraph& model = p.model();
  const std::string layer = p.whole_name(name);
  model.linear_layers.push_back(layer);
  w_ = parts(p.matrix(name, shape, axes, standard_deviation));  // [out_i, in] each
  if (bias) {
    b_ = parts(p.bias(name, Shape(shape.begin(), shape.end() - 1),
                      {axes.begin(), axes.end() - 1}));  // [out_i] each
  }
  const Lora& lora = model.lora;
  if (!lora.adapts(layer)) return;
  Scope scope(graph_, cat(name, ".lora"));
  Value dropped = dropout(graph_, x, model.row_keys, lora.dropout, cat(layer, ".lora"));
  Value a = p.lora_a(name, shape.back(), axes.back());                  // [rank, in]
  low_rank_ = scale(graph_, linear(graph_, dropped, a), lora.scale());  // [..., rank]
  lora_b_ = parts(p.lora_b(name, shape, axes));                         // [out_i, rank] each
}

Value FusedLinear::operator()(size_t i) const {
  std::optional<Value> bias;
  if (!b_.empty()) bias = b_[i];
  Value y = linear(graph_, x_, w_[i], bias);  // [..., out_i]
  if (!low_rank_) return y;
  Scope scope(graph_, cat(name_, ".lora"));
  return add(graph_, y, linear(graph_, low_rank_, lora_b_[i]));  // [..., out_i]
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
