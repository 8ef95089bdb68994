#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

F16 of_bits(int bits) {
  F16 h;
  h.bits = static_cast<uint16_t>(bits);
  return h;
}

// By its definition: sign, exponent, mantissa.
double value_of(int bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                     : exponent == 31 ? (mantissa ? std::nan("") : HUGE_VAL)
                                      : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

TEST(Float16, EveryValueWidensExactlyAndComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    auto wide = static_cast<float>(of_bits(bits));
    if (std::isnan(value_of(bits))) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(F16(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(wide, value_of(bits)) << bits;
    EXPECT_EQ(std::signbit(wide), bits >> 15 == 1) << bits;
    EXPECT_EQ(F16(wide).bits, bits);
  }
}

TEST(Float16, RoundsToNearestEven) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    // Between this value and the next, of which the last would be 2^16.
    double low = value_of(bits), high = bits == 0x7bff ? 65536 : value_of(bits + 1);
    auto middle = static_cast<float>((low + high) / 2);
    int even = bits % 2 == 0 ? bits : bits + 1;
    for (float sign : {1.0f, -1.0f}) {
      int sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(F16(sign * middle).bits, even | sign_bit) << low;
      ASSERT_EQ(F16(sign * std::nextafterf(middle, 0)).bits, bits | sign_bit) << low;
      ASSERT_EQ(F16(sign * std::nextafterf(middle, kInfinity)).bits, (bits + 1) | sign_bit) << low;
    }
  }
  EXPECT_EQ(F16(1e30f).bits, 0x7c00);
  EXPECT_EQ(F16(-kInfinity).bits, 0xfc00);
  EXPECT_EQ(F16(1e-30f).bits, 0);
  EXPECT_EQ(F16(-1e-42f).bits, 0x8000);
}

}  // namespace
}  // namespace tessera
