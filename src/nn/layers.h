#pragma once
#include <string>

#include "nn/parameter.h"

namespace tessera {

// Layers that declare their parameters where they use them, under the names of a Hugging Face
// checkpoint. x [..., in] each, the result of its dtype.

// The logical axes of a matrix (Parameter::axes).
struct MatrixAxes {
  std::string out, in;
};

// y = x W^T (+ b): W "NAME.weight" [out, in], normal(0, standard_deviation); b "NAME.bias" [out],
// zeros.
Value linear_layer(const ParameterScope& p, const std::string& name, Value x, int64_t out,
                   const MatrixAxes& axes, double standard_deviation, bool bias = false);

// rms_norm with weight "NAME.weight" [in], in a scope of that name.
Value rms_norm_layer(const ParameterScope& p, const std::string& name, Value x, double epsilon);

// layer_norm with weight "NAME.weight" [in] and bias "NAME.bias" [in], in a scope of that name.
Value layer_norm_layer(const ParameterScope& p, const std::string& name, Value x, double epsilon,
                       bool bias);

}  // namespace tessera
