#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

// Elements of half precision on the host, for the doubles of cublasLt and NCCL.
namespace tessera::emulated_gpu {

inline float from_bf16(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }
inline uint16_t to_bf16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  if (v != v) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_f16(uint16_t v) {
  const float sign = v & 0x8000u ? -1.0f : 1.0f;
  const int exponent = v >> 10 & 31, fraction = v & 1023;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}
inline uint16_t to_f16(float v) {
  const auto sign = static_cast<uint16_t>(std::signbit(v) ? 0x8000u : 0u);
  const float size = std::fabs(v);
  if (v != v) return sign | 0x7e00u;
  if (size >= 65520.0f) return sign | 0x7c00u;
  // Steps of the last place: 2^-24 below 2^-14, then 2^-10 of the power of two below.
  int exponent = -14;
  if (size >= 0x1p-14f) exponent = std::ilogb(size);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + steps));
}

}  // namespace tessera::emulated_gpu
