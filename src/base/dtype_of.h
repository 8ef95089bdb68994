#pragma once
#include "base/dtype.h"

namespace tessera {

// The dtype of elements that are T in C++; of no other T.
template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<BF16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::kBool;
}

}  // namespace tessera
