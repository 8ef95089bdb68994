#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace tessera {

// Whether weights may be stored in this type: f32, bf16, f16.
bool is_weight_dtype(DType dtype);

// `stored` elements, which need not be aligned, as f32: exact.
void to_f32(DType dtype, const std::byte* stored, std::span<float> values);

// f32 to the stored type, rounded to nearest even. Returns how many finite values became infinite.
int64_t from_f32(std::span<const float> values, DType dtype, std::byte* stored);

}  // namespace tessera
