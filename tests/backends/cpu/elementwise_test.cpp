#include "backends/cpu/kernels/elementwise.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

// The last one spans three tiles.
constexpr int64_t kSizes[] = {0, 1, 3, 15, 16, 17, 33, 1000, 70001};

TEST(Elementwise, AddRoundsOnce) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t n : kSizes) {
      Tensor a = Tensor::random(dtype, n, 1), b = Tensor::random(dtype, n, 2);
      Tensor y = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(dtype, n, 7);
        add(dtype, a.data(), b.data(), out.data(), n, isa, pool);
        return out;
      });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], rounded(dtype, a[i] + b[i]));
      add(dtype, a.data(), b.data(), a.data(), n, isa, pool_of(2));
      EXPECT_TRUE(a == y);
    }
  });
}

TEST(Elementwise, AddBiasRoundsOnce) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (auto size : {std::pair{0, 3}, {1, 1}, {5, 17}, {300, 130}}) {
      int64_t rows = size.first, width = size.second;
      Tensor x = Tensor::random(dtype, rows * width, 1), b = Tensor::random(dtype, width, 2);
      Tensor y = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(dtype, rows * width, 7);
        add_bias(dtype, x.data(), b.data(), out.data(), rows, width, isa, pool);
        return out;
      });
      for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], rounded(dtype, x[i] + b[i % width]));
      add_bias(dtype, x.data(), b.data(), x.data(), rows, width, isa, pool_of(2));
      EXPECT_TRUE(x == y);
    }
  });
}

TEST(Elementwise, ScaleReadsItsFactorFromMemory) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t n : kSizes) {
      float factor = 0.3f;
      Tensor x = Tensor::random(dtype, n, 1);
      Tensor y = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(dtype, n, 7);
        scale(dtype, x.data(), &factor, out.data(), n, isa, pool);
        return out;
      });
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], rounded(dtype, x[i] * factor));
      scale(dtype, x.data(), &factor, x.data(), n, isa, pool_of(2));
      EXPECT_TRUE(x == y);
    }
  });
}

// base/float16.h, whose own test goes through all values, says what the bits are.
TEST(Elementwise, CastsToF16AndBackOnEverySet) {
  std::vector<F16> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  std::vector<float> floats;
  for (int64_t i = 0; i < 70001; ++i) {  // all signs and exponents, random mantissas
    uint64_t bits = random_below(3, 0, static_cast<uint64_t>(i), uint64_t{1} << 32);
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float x : {65504.0f, 65519.99f, 65520.0f, 0x1p-14f, 0x1p-25f, 0x1.8p-25f, 1.00048828125f})
    floats.push_back(x);
  auto bits_of = [](float x) { return std::bit_cast<uint32_t>(x); };
  for (Isa isa : isas_here()) {
    SCOPED_TRACE(name(isa));
    for (int64_t n : {int64_t{0x10000}, int64_t{13}}) {
      std::vector<float> wide(static_cast<size_t>(n) + 1, 7);
      cast_to_f32(halves.data() + (0x10000 - n), wide.data(), n, isa, pool_of(2));
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        auto expected = static_cast<float>(halves[static_cast<size_t>(0x10000 - n) + i]);
        ASSERT_EQ(bits_of(wide[i]), bits_of(expected)) << i;
      }
      EXPECT_EQ(wide.back(), 7);
    }
    std::vector<F16> narrow(floats.size() + 1, F16(7));
    cast_to_f16(floats.data(), narrow.data(), static_cast<int64_t>(floats.size()), isa, pool_of(2));
    for (size_t i = 0; i < floats.size(); ++i)
      ASSERT_EQ(narrow[i].bits, F16(floats[i]).bits) << floats[i];
    EXPECT_EQ(narrow.back().bits, F16(7).bits);
  }
}

TEST(Elementwise, CastsRoundToNearestEvenAndBack) {
  for (Isa isa : isas_here()) {
    for (int64_t n : kSizes) {
      Tensor x = Tensor::random(DType::kF32, n, 1);
      float special[] = {1.00390625f,   1.01171875f, -0.0f,
                         3.4028235e38f, 1e-40f,      std::numeric_limits<float>::infinity()};
      for (int64_t i = 0; i < std::min<int64_t>(n, 6); ++i) x.set(i, special[i]);
      Tensor narrow = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(DType::kBF16, n, 7);
        cast_to_bf16(x.f32(), out.bf16(), n, isa, pool);
        return out;
      });
      Tensor wide = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(DType::kF32, n, 7);
        cast_to_f32(narrow.bf16(), out.f32(), n, isa, pool);
        return out;
      });
      for (int64_t i = 0; i < n; ++i) {
        float from = x.f32()[i];
        // AVX-512's one instruction for it takes subnormal numbers for zero.
        const bool flushes = isa == Isa::kAvx512Bf16 || isa == Isa::kAmx;
        if (flushes && std::fpclassify(from) == FP_SUBNORMAL) from = 0;
        ASSERT_EQ(narrow.bf16()[i].bits, BF16(from).bits);
        ASSERT_EQ(wide[i], narrow[i]);
      }
    }
    // NaNs whose payload rounding would carry into infinity or zero.
    for (uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
      auto nan = std::bit_cast<float>(bits);
      BF16 y;
      cast_to_bf16(&nan, &y, 1, isa, pool_of(1));
      EXPECT_TRUE(std::isnan(static_cast<float>(y)));
    }
  }
}

TEST(Elementwise, Copies) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t n : kSizes) {
      Tensor y(dtype, n);
      Tensor x = Tensor::random(dtype, n, 1);
      copy(x.data(), y.data(), n * size_of(dtype), pool_of(3));
      EXPECT_TRUE(y == x);
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
