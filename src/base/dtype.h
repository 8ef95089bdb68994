#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera {

// Element types of tensors. `kI32` holds token ids, `kI64` counters, `kBool` predicates (one byte,
// 0 or 1).
enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kBool };

// Bytes of one element.
constexpr int64_t size_of(DType d) {
  switch (d) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kBool: return 1;
  }
  return 0;
}

constexpr bool is_float(DType d) {
  return d == DType::kF64 || d == DType::kF32 || d == DType::kBF16 || d == DType::kF16;
}

// "f64", "f32", "bf16", "f16", "i64", "i32", "bool".
std::string_view name(DType d);
// Inverse of name(); throws UserError for another word.
DType dtype_from_name(std::string_view text);

// Brain floating point: the upper half of an IEEE float. Rounds to nearest even; NaN stays NaN.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(BF16) == 2);

}  // namespace tessera
