#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// One use of an op: operand types in f64 (floats) and how to fill them.
struct OpSample {
  std::string label;
  OpPtr op;
  std::vector<TensorType> inputs;
  // Range of the values of each float operand; integers are drawn from [0, integer_bound).
  double low = -1, high = 1;
  int64_t integer_bound = 1;
  Mesh mesh = {};
  // Which outputs are statistics without a gradient (rms_norm's rstd, attention's lse).
  std::vector<int> statistics = {};
  // Operands whose elements are given.
  std::map<size_t, std::vector<double>> given = {};
};

// At least one sample for every op of the registry but `input`.
std::vector<OpSample> op_samples();

}  // namespace tessera
