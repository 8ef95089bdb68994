#pragma once
#include <functional>
#include <string>

#include "nn/parameter.h"

namespace tessera {

// Layers that declare their parameters where they use them, under the names of a Hugging Face
// checkpoint. x [..., in] each, the result of its dtype. Linear layers add what adapts them
// (nn/lora.h), if they are among the targets of ParameterScope::model().

// The logical axes of a matrix (Parameter::axes).
struct MatrixAxes {
  std::string out, in;
};

// y = x W^T (+ b): W "NAME.weight" [out, in], normal(0, standard_deviation); b "NAME.bias" [out],
// zeros.
Value linear_layer(const ParameterScope& p, const std::string& name, Value x, int64_t out,
                   const MatrixAxes& axes, double standard_deviation, bool bias = false);

// A linear layer that a checkpoint has in the place of several: W "NAME.weight" [.., in] and b
// "NAME.bias" [..] stand for some matrices [out_i, in] and vectors [out_i], which `parts` makes of
// either tensor, whatever its last dim.
class FusedLinear {
 public:
  using Parts = std::function<std::vector<Value>(Value)>;
  // `axes`: of every dim of W.
  FusedLinear(const ParameterScope& p, const std::string& name, Value x, const Shape& shape,
              const std::vector<std::string>& axes, double standard_deviation, bool bias,
              const Parts& parts);

  // y_i = x W_i^T (+ b_i), each to be asked for once.
  Value operator()(size_t i) const;

 private:
  Graph& graph_;
  std::string name_;
  Value x_, low_rank_;  // low_rank_: scale * dropout(x) A^T, where the layer is adapted
  std::vector<Value> w_, b_, lora_b_;
};

// rms_norm with weight "NAME.weight" [in], in a scope of that name.
Value rms_norm_layer(const ParameterScope& p, const std::string& name, Value x, double epsilon);

// layer_norm with weight "NAME.weight" [in] and bias "NAME.bias" [in], in a scope of that name.
Value layer_norm_layer(const ParameterScope& p, const std::string& name, Value x, double epsilon,
                       bool bias);

}  // namespace tessera
