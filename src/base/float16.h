#pragma once
#include <bit>
#include <cstdint>

namespace tessera {

// IEEE 754 binary16: 5 bits of exponent, 10 of mantissa; 65504 is its highest number. Rounds to
// nearest even, to infinity from 65520 on, to subnormal numbers below 2^-14; NaN stays NaN. The
// same bits as the F16C instructions give.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f), sign = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
    uint32_t magnitude = 0x7c00u;
    if (m > 0x7f800000u) {
      magnitude = 0x7e00u | ((m >> 13) & 0x3ffu);
    } else if (m < 0x38800000u) {
      // The last bit of 0.5 + x is worth 2^-24, as that of a subnormal number is.
      magnitude = std::bit_cast<uint32_t>(std::bit_cast<float>(m) + 0.5f) - 0x3f000000u;
    } else if (m < 0x477ff000u) {
      magnitude = (m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | magnitude);
  }
  explicit operator float() const {
    uint32_t sign = (bits & 0x8000u) << 16, m = bits & 0x7fffu;
    if (m < 0x400u) {
      float subnormal = static_cast<float>(m) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(subnormal) | sign);
    }
    if (m < 0x7c00u) return std::bit_cast<float>(sign | ((m << 13) + 0x38000000u));
    uint32_t quiet = m > 0x7c00u ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | (m << 13) | quiet);
  }
};
static_assert(sizeof(F16) == 2);

}  // namespace tessera
