#pragma once
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "base/dtype.h"
#include "base/text.h"
#include "runtime/kernel_table.h"

// From dtypes, known when a launch is prepared, to element types: float, BF16, double, int32_t,
// int64_t, and uint8_t for bool.
namespace tessera::cpu {

// The type in which elements of T are computed: float for BF16, itself for the others.
template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, BF16>, float, T>;

template <class T>
concept FloatCompute = std::is_floating_point_v<ComputeOf<T>>;

// The same element in another type. Floats are rounded to nearest even (to BF16 by way of float); a
// float becomes an integer toward zero, NaN is 0, and what lies beyond the integers is the nearest
// of them; true is everything but zero.
template <class To, class From>
To convert_element(From from) {
  auto x = static_cast<ComputeOf<From>>(from);
  if constexpr (std::same_as<To, uint8_t>) {
    return x != 0 ? 1 : 0;
  } else if constexpr (std::integral<To> && std::floating_point<decltype(x)>) {
    constexpr auto kLowest = static_cast<decltype(x)>(std::numeric_limits<To>::min());
    if (x != x) return 0;
    if (x < kLowest) return std::numeric_limits<To>::min();
    if (x >= -kLowest) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(static_cast<ComputeOf<To>>(x));
  }
}

inline std::string no_kernel(const PrepareContext& context, DType dtype) {
  return cat("portable ", context.op.name(), " has no kernel for ", name(dtype));
}

// The three of these call body(std::type_identity<T>{}) with the element type of a dtype, and
// return what it prepares; another dtype is declined.
template <class Body>
Prepared for_float(const PrepareContext& context, DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32: return body(std::type_identity<float>{});
    case DType::kBF16: return body(std::type_identity<BF16>{});
    case DType::kF64: return body(std::type_identity<double>{});
    default: return no_kernel(context, dtype);
  }
}
template <class Body>
Prepared for_number(const PrepareContext& context, DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kI32: return body(std::type_identity<int32_t>{});
    case DType::kI64: return body(std::type_identity<int64_t>{});
    default: return for_float(context, dtype, body);
  }
}
template <class Body>
Prepared for_element(const PrepareContext& context, DType dtype, const Body& body) {
  if (dtype == DType::kBool) return body(std::type_identity<uint8_t>{});
  return for_number(context, dtype, body);
}

// Calls body with the unsigned integer that has the size of the dtype's elements: enough to move
// them.
template <class Body>
Prepared for_bits(DType dtype, const Body& body) {
  switch (size_of(dtype)) {
    case 1: return body(std::type_identity<uint8_t>{});
    case 2: return body(std::type_identity<uint16_t>{});
    case 4: return body(std::type_identity<uint32_t>{});
    default: return body(std::type_identity<uint64_t>{});
  }
}

}  // namespace tessera::cpu
