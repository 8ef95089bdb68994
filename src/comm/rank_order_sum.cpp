#include "comm/rank_order_sum.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/float16.h"
#include "base/text.h"

// One copy an instruction set, chosen when the program is loaded; additions alone, so the bits are
// the same. Sanitizers are not ready that early.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_PER_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_PER_ISA
#endif

namespace tessera {
namespace {

// Elements whose sum stays in the first-level cache while the operands pass by.
constexpr int64_t kBlock = 2048;

struct BF16Bits {
  uint16_t bits;
};

inline float widen(float v) { return v; }
inline double widen(double v) { return v; }
// Unsigned, since sums of integers wrap around.
inline uint32_t widen(int32_t v) { return static_cast<uint32_t>(v); }
inline uint64_t widen(int64_t v) { return static_cast<uint64_t>(v); }
inline float widen(F16 v) { return static_cast<float>(v); }
inline float widen(BF16Bits v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }

template <class Out, class Acc>
inline Out narrow(Acc v) {
  if constexpr (std::is_same_v<Out, BF16Bits>) {
    return BF16Bits{BF16(v).bits};
  } else {
    return static_cast<Out>(v);
  }
}

struct Sum {
  template <class In, class Acc>
  static Acc apply(Acc a, Acc b) {
    return a + b;
  }
};

struct Max {
  template <class In, class Acc>
  static Acc apply(Acc a, Acc b) {
    if constexpr (std::is_integral_v<In>) {
      return static_cast<In>(a) > static_cast<In>(b) ? a : b;
    } else {
      return a != a || b != b ? a + b : std::max(a, b);
    }
  }
};

template <class Op, class In, class Out>
[[gnu::always_inline]] inline void combine(const std::byte* const* x, int count, std::byte* y,
                                           int64_t n) {
  using Acc = decltype(widen(In{}));
  Acc sum[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    int64_t size = std::min(kBlock, n - begin);
    const In* first = reinterpret_cast<const In*>(x[0]) + begin;
    for (int64_t e = 0; e < size; ++e) sum[e] = widen(first[e]);
    for (int j = 1; j < count; ++j) {
      const In* operand = reinterpret_cast<const In*>(x[j]) + begin;
      for (int64_t e = 0; e < size; ++e) sum[e] = Op::template apply<In>(sum[e], widen(operand[e]));
    }
    Out* result = reinterpret_cast<Out*>(y) + begin;
    for (int64_t e = 0; e < size; ++e) result[e] = narrow<Out>(sum[e]);
  }
}

using Combine = void (*)(const std::byte* const*, int, std::byte*, int64_t);

// Attributes for several instruction sets do not go with templates: one function a combination.
#define TESSERA_COMBINE(function, In, Out)                                                \
  TESSERA_PER_ISA void sum_##function(const std::byte* const* x, int count, std::byte* y, \
                                      int64_t n) {                                        \
    combine<Sum, In, Out>(x, count, y, n);                                                \
  }                                                                                       \
  TESSERA_PER_ISA void max_##function(const std::byte* const* x, int count, std::byte* y, \
                                      int64_t n) {                                        \
    combine<Max, In, Out>(x, count, y, n);                                                \
  }
TESSERA_COMBINE(f32, float, float)
TESSERA_COMBINE(f64, double, double)
TESSERA_COMBINE(bf16, BF16Bits, BF16Bits)
TESSERA_COMBINE(bf16_f32, BF16Bits, float)
TESSERA_COMBINE(f16, F16, F16)
TESSERA_COMBINE(f16_f32, F16, float)
TESSERA_COMBINE(i32, int32_t, int32_t)
TESSERA_COMBINE(i64, int64_t, int64_t)
#undef TESSERA_COMBINE

struct Row {
  DType dtype, output_dtype;
  Combine sum, max;
};
constexpr Row kRows[] = {
    {DType::kF32, DType::kF32, sum_f32, max_f32},
    {DType::kF64, DType::kF64, sum_f64, max_f64},
    {DType::kBF16, DType::kBF16, sum_bf16, max_bf16},
    {DType::kBF16, DType::kF32, sum_bf16_f32, max_bf16_f32},
    {DType::kF16, DType::kF16, sum_f16, max_f16},
    {DType::kF16, DType::kF32, sum_f16_f32, max_f16_f32},
    {DType::kI32, DType::kI32, sum_i32, max_i32},
    {DType::kI64, DType::kI64, sum_i64, max_i64},
};

}  // namespace

void combine_in_rank_order(Reduction reduction, DType dtype, DType output_dtype,
                           const std::byte* const* x, int count, std::byte* y, int64_t n) {
  for (const Row& row : kRows) {
    if (row.dtype != dtype || row.output_dtype != output_dtype) continue;
    return (reduction == Reduction::kSum ? row.sum : row.max)(x, count, y, n);
  }
  TESSERA_CHECK(false, cat("no sum of ", name(dtype), " into ", name(output_dtype)));
}

}  // namespace tessera
