#pragma once
// The bound that holds every backend's kernels of primitives to the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace tessera {

// Distance between neighbouring bf16 numbers around x.
inline double bf16_ulp(double x) {
  return std::ldexp(1.0, std::max(std::ilogb(x == 0 ? 1e-38 : x), -126) - 7);
}

// Equal but for the last bits that functions of the mathematical library may differ in.
inline void expect_close(DType dtype, const std::vector<double>& got,
                         const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    double allowed = dtype == DType::kBF16  ? bf16_ulp(want[i])
                     : dtype == DType::kF32 ? 1e-6 * largest
                     : dtype == DType::kF64 ? 1e-14 * largest
                                            : 0;
    ASSERT_LE(std::abs(got[i] - want[i]), allowed)
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

inline void expect_same(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

// Ops that round nothing.
inline const std::set<std::string_view> kExact{
    "constant", "table",      "iota",        "transpose", "broadcast", "slice",      "pad",
    "select",   "compare",    "concatenate", "gather",    "neg",       "abs",        "max",
    "min",      "reduce_max", "convert",     "offload",   "fetch",     "random_bits"};

}  // namespace tessera
