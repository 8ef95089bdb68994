#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// The composites as nodes with operands, for the test of their kernels.

inline constexpr DType kCompute = DType::kBF16;  // stands for the dtype under test
inline constexpr DType kWide = DType::kF32;      // statistics, losses and parameter gradients

struct Case {
  std::string label;
  OpPtr op;
  std::vector<TensorType> inputs;  // kBF16: the dtype under test; kF32: always f32
  int64_t ids = 1;                 // integers lie in [0, ids)
  bool f32_only = false;
  bool ignores = false;  // some integers are kIgnoreIndex
  int64_t valid = 0;     // i32 scalars
  // Operands whose elements are given.
  std::map<size_t, std::vector<double>> given = {};
};

template <class T, class... Args>
OpPtr make(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}
inline TensorType t(Shape s) { return {std::move(s), kCompute}; }
inline TensorType w(Shape s) { return {std::move(s), kWide}; }
inline TensorType keys(int64_t rows) { return {{rows}, DType::kI64}; }
inline TensorType ids(Shape s) { return {std::move(s), DType::kI32}; }

// At least one for every composite of the registry.
std::vector<Case> composite_cases();

}  // namespace tessera
