#include "base/element_types.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float16.h"

namespace tessera {
namespace {

template <class T>
void widen(const std::byte* stored, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(static_cast<void*>(&element), stored + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(element);
  }
}

template <class T>
int64_t narrow(std::span<const float> values, std::byte* stored) {
  int64_t overflows = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    auto element = T(values[i]);
    overflows += std::isfinite(values[i]) && !std::isfinite(static_cast<float>(element));
    std::memcpy(stored + i * sizeof(T), static_cast<const void*>(&element), sizeof(T));
  }
  return overflows;
}

}  // namespace

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

void to_f32(DType dtype, const std::byte* stored, std::span<float> values) {
  TESSERA_CHECK(is_weight_dtype(dtype));
  if (dtype == DType::kBF16) return widen<BF16>(stored, values);
  if (dtype == DType::kF16) return widen<F16>(stored, values);
  if (!values.empty()) std::memcpy(values.data(), stored, values.size_bytes());
}

int64_t from_f32(std::span<const float> values, DType dtype, std::byte* stored) {
  TESSERA_CHECK(is_weight_dtype(dtype));
  if (dtype == DType::kBF16) return narrow<BF16>(values, stored);
  if (dtype == DType::kF16) return narrow<F16>(values, stored);
  if (!values.empty()) std::memcpy(stored, values.data(), values.size_bytes());
  return 0;
}

}  // namespace tessera
