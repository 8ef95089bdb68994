#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/ref/interpreter.h"
#include "backends/ref/kernels.h"
#include "base/ignore_index.h"
#include "base/random.h"
#include "tests/backends/cpu/composite_cases.h"

// Composites with operands, and how exact a kernel has to be: for tests of every backend's kernels.
namespace tessera {

// Values in f64 that the dtype can hold exactly.
inline ref::Feeds feeds_for(const Case& c, DType dtype) {
  ref::Feeds feeds;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const TensorType& type = c.inputs[i];
    std::vector<double> values(static_cast<size_t>(type.elements()));
    for (size_t k = 0; k < values.size(); ++k) {
      double x = 2 * random_uniform(11, i, k) - 1;
      if (type.dtype == DType::kI32) {
        x = static_cast<double>(random_below(12, i, k, static_cast<uint64_t>(c.ids)));
        if (c.ignores && k % 5 == 3) x = kIgnoreIndex;
        if (type.shape.empty()) x = static_cast<double>(c.valid);
      } else if (type.dtype == DType::kI64) {
        x = values.size() == 1 ? 3
                               : static_cast<double>(k * 401);  // step; ascending segment begins
      } else if (type.dtype == DType::kBool) {
        x = 1;
      } else if (type.dtype == kCompute && dtype != DType::kF64) {
        x = ref::round_to(dtype, x);
      } else {
        x = static_cast<float>(c.op->name() == "adamw" && (i == 2 || i == 4 || i == 9) ? std::abs(x)
                                                                                       : x);
      }
      values[k] = x;
    }
    // Statistics must fit their tensors: rstd is positive, lse is large enough that probabilities
    // stay below 1.
    if ((c.op->name().starts_with("rms_norm_backward") && i == 2) ||
        (c.op->name().starts_with("layer_norm_backward") && i == 3))
      for (double& x : values) x = static_cast<float>(std::abs(x) + 0.5);
    if (i == 4 && (c.op->name() == "attention_backward" ||
                   c.op->name().starts_with("linear_log_sum_exp_backward")))
      for (double& x : values) x = static_cast<float>(std::abs(x) + 4);
    if (auto given = c.given.find(i); given != c.given.end()) values = given->second;
    feeds[cat("x", i)] = {values};
  }
  return feeds;
}

inline Graph graph_for(const Case& c, DType dtype) {
  Graph g;
  std::vector<Value> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    TensorType type = c.inputs[i];
    if (type.dtype == kCompute)
      type.dtype = dtype;
    else if (type.dtype == kWide && dtype == DType::kF64)
      type.dtype = DType::kF64;
    inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
  }
  std::vector<Value> outputs = g.add(c.op, inputs);
  for (size_t k = 0; k < outputs.size(); ++k) g.output(cat("y", k), outputs[k]);
  return g;
}

inline double rms(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, a.size())));
}

// The most that the error against f64 may be: 1.5 times that of the decomposition in the same
// dtype, run by the reference backend. A decomposition can be exact by luck: allow half a unit in
// the last place, and a whole one where there are too few elements for an average.
inline double error_bound(DType output, const std::vector<double>& decomposed,
                          const std::vector<double>& truth) {
  double magnitude = rms(truth, std::vector<double>(truth.size(), 0));
  double unit = output == DType::kBF16 ? 0x1p-9 : output == DType::kF16 ? 0x1p-12 : 0x1p-24;
  if (truth.size() < 64) unit *= 2;
  return 1.5 * std::max(rms(decomposed, truth), unit * magnitude);
}

}  // namespace tessera
