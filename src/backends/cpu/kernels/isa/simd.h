#pragma once
// One vector of floats in the widest registers of the instruction set that this file is compiled
// for. Included by kernels/isa/*.cpp only, each compiled once per set with TESSERA_ISA naming its
// namespace.
//
// Rule for those files: include nothing but this header, <cstdint>, <cstddef> and headers that only
// declare (<immintrin.h> never leaves a copy of its functions behind). An inline function or
// template of another header would be compiled with wide instructions here, and the linker might
// keep that copy for a machine that lacks them.
#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/dtype.h"

namespace tessera::cpu::TESSERA_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#define TESSERA_LANES_XOR(d)                                                                    \
  0 ^ d, 1 ^ d, 2 ^ d, 3 ^ d, 4 ^ d, 5 ^ d, 6 ^ d, 7 ^ d, 8 ^ d, 9 ^ d, 10 ^ d, 11 ^ d, 12 ^ d, \
      13 ^ d, 14 ^ d, 15 ^ d
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#define TESSERA_LANES_XOR(d) 0 ^ d, 1 ^ d, 2 ^ d, 3 ^ d, 4 ^ d, 5 ^ d, 6 ^ d, 7 ^ d
#else
constexpr int kLanes = 4;
#define TESSERA_LANES_XOR(d) 0 ^ d, 1 ^ d, 2 ^ d, 3 ^ d
#endif
#define TESSERA_LANE_NUMBERS TESSERA_LANES_XOR(0)

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t UintVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));

#define TESSERA_INLINE static inline __attribute__((always_inline))

// x - 0 is x for every x, so this is a bare broadcast; x + 0 would have to turn -0 into 0.
TESSERA_INLINE Vec splat(float x) { return x - Vec{}; }

// GCC 12 turns __builtin_convertvector and `a > b ? a : b` into several slow instructions for 512
// bits, so these few are spelled out. Their "maskz" forms avoid its false warnings of uninitialised
// registers.

// bf16 to float, exact.
TESSERA_INLINE Vec widen(HalfVec h) {
#if defined(__AVX512F__)
  UintVec u = (UintVec)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)h);
#else
  UintVec u = __builtin_convertvector(h, UintVec);
#endif
  return (Vec)(u << 16);
}
// float to bf16: rounds to nearest even; NaN stays NaN. The one instruction of AVX512-BF16 takes
// subnormal numbers for zero; with it SwiGLU takes 0.8 of the time.
TESSERA_INLINE HalfVec narrow(Vec v) {
#if defined(__AVX512BF16__)
  return (HalfVec)_mm512_cvtneps_pbh((__m512)v);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  return (HalfVec)vcvt_bf16_f32((float32x4_t)v);
#else
  UintVec u = (UintVec)v;
  UintVec rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  rounded = (v == v) ? rounded : UintVec{} + 0x7fc0u;
#if defined(__AVX512F__)
  return (HalfVec)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)rounded);
#else
  return __builtin_convertvector(rounded, HalfVec);
#endif
#endif
}
// a > b ? a : b, and a < b ? a : b: b where either is NaN.
TESSERA_INLINE Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
TESSERA_INLINE Vec min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_min_ps(0xffff, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

TESSERA_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
TESSERA_INLINE Vec load(const BF16* p) {
  HalfVec h;
  __builtin_memcpy(&h, p, sizeof h);
  return widen(h);
}
TESSERA_INLINE void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
TESSERA_INLINE void store(BF16* p, Vec v) {
  HalfVec h = narrow(v);
  __builtin_memcpy((void*)p, &h, sizeof h);
}

// One element. BF16's own conversions are inline functions of another header: see the rule above.
TESSERA_INLINE float load_one(const float* p) { return *p; }
TESSERA_INLINE float load_one(const BF16* p) {
  uint32_t u = (uint32_t)p->bits << 16;
  float x;
  __builtin_memcpy(&x, &u, sizeof x);
  return x;
}
TESSERA_INLINE void store_one(float* p, float x) { *p = x; }
TESSERA_INLINE void store_one(BF16* p, float x) { p->bits = narrow(splat(x))[0]; }

// The first n lanes, 0 < n < kLanes; the others read as `fill`. Memory behind them is not touched.
template <class T>
TESSERA_INLINE Vec load_first(const T* p, int64_t n, float fill = 0) {
#if defined(__AVX512F__)
  __mmask16 mask = (__mmask16)((1u << n) - 1);
  if constexpr (sizeof(T) == 4) return (Vec)_mm512_mask_loadu_ps((__m512)splat(fill), mask, p);
  Vec v = widen((HalfVec)_mm256_maskz_loadu_epi16(mask, p));
  return IntVec{TESSERA_LANE_NUMBERS} < (int32_t)n ? v : splat(fill);
#else
  float buffer[kLanes];
  for (int i = 0; i < kLanes; ++i) buffer[i] = fill;
  for (int64_t i = 0; i < n; ++i) buffer[i] = load_one(p + i);
  return load(buffer);
#endif
}
template <class T>
TESSERA_INLINE void store_first(T* p, Vec v, int64_t n) {
#if defined(__AVX512F__)
  __mmask16 mask = (__mmask16)((1u << n) - 1);
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(p, mask, (__m512)v);
  } else {
    _mm256_mask_storeu_epi16(p, mask, (__m256i)narrow(v));
  }
#else
  if constexpr (sizeof(T) == 4) {
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
  } else {
    HalfVec h = narrow(v);
    for (int64_t i = 0; i < n; ++i) p[i].bits = h[i];
  }
#endif
}

// The two ways to touch memory, so that for_vectors() needs its body once. `fill` is what lanes
// behind the end read as.
struct AllLanes {
  template <class T>
  __attribute__((always_inline)) Vec load(const T* p, float = 0) const {
    return TESSERA_ISA::load(p);
  }
  template <class T>
  __attribute__((always_inline)) void store(T* p, Vec v) const {
    TESSERA_ISA::store(p, v);
  }
};
struct FirstLanes {
  int64_t count;
  template <class T>
  __attribute__((always_inline)) Vec load(const T* p, float fill = 0) const {
    return load_first(p, count, fill);
  }
  template <class T>
  __attribute__((always_inline)) void store(T* p, Vec v) const {
    store_first(p, v, count);
  }
};
// Asks for what follows, too: a thread's own loads keep too few lines on their way from memory.
// SwiGLU takes 0.5 to 0.65 of the time so, other kernels 0.75 to 0.95.
struct AllLanesAhead : AllLanes {
  template <class T>
  __attribute__((always_inline)) Vec load(const T* p, float = 0) const {
    constexpr int64_t kAheadBytes = 1024;
    __builtin_prefetch((const char*)p + kAheadBytes);
    return TESSERA_ISA::load(p);
  }
};
// body(lanes, i) for i = 0, kLanes, 2 kLanes ... < size; `lanes` loads and stores what lies below
// size. For what goes on behind `size`, or is long.
template <class Body>
TESSERA_INLINE void for_vectors(int64_t size, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) body(AllLanesAhead{}, i);
  if (i < size) body(FirstLanes{size - i}, i);
}
// The same for short rows that lie apart, or in caches.
template <class Body>
TESSERA_INLINE void for_vectors_apart(int64_t size, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) body(AllLanes{}, i);
  if (i < size) body(FirstLanes{size - i}, i);
}

// Correctly rounded.
TESSERA_INLINE Vec sqrt(Vec v) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_sqrt_ps(0xffff, (__m512)v);
#elif defined(__AVX2__)
  return (Vec)_mm256_sqrt_ps((__m256)v);
#elif defined(__aarch64__)
  return (Vec)vsqrtq_f32((float32x4_t)v);
#else
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}

// Lane i receives lane i ^ distance.
template <int distance>
TESSERA_INLINE Vec swap_lanes(Vec v) {
  return __builtin_shufflevector(v, v, TESSERA_LANES_XOR(distance));
}
// Sums and maxima over lanes, halves first, in a fixed order.
TESSERA_INLINE float sum_lanes(Vec v) {
  if constexpr (kLanes > 8) v += swap_lanes<8>(v);
  if constexpr (kLanes > 4) v += swap_lanes<4>(v);
  v += swap_lanes<2>(v);
  v += swap_lanes<1>(v);
  return v[0];
}
TESSERA_INLINE float max_lanes(Vec v) {
  if constexpr (kLanes > 8) v = max(v, swap_lanes<8>(v));
  if constexpr (kLanes > 4) v = max(v, swap_lanes<4>(v));
  v = max(v, swap_lanes<2>(v));
  v = max(v, swap_lanes<1>(v));
  return v[0];
}

// e^x = 2^n * p(r) with |r| <= ln2/2. p is 1 + r + r^2 q(r), q of degree 4 through the Chebyshev
// nodes of that interval (truncation error 1.1e-8); relative error below 1.2e-7 on [-87.3, 88.7].
// Smaller x gives 0, larger x gives infinity, NaN stays NaN.
TESSERA_INLINE Vec exp(Vec x) {
  constexpr float kLowest = -87.33654f, kHighest = 88.72283f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  Vec clamped = min(max(x, splat(kLowest)), splat(kHighest));
  Vec shifted = clamped * 1.44269504088896341f + kRound;
  UintVec n = (UintVec)shifted - (UintVec)splat(kRound);
  Vec whole = shifted - kRound;
  Vec r = clamped - whole * 0.693359375f;  // ln2 in two parts: the first product is exact
  r = r - whole * -2.12194440e-4f;
  Vec p = splat(0.00139262508f);
  p = p * r + 0.00836323288f;
  p = p * r + 0.0416665542f;
  p = p * r + 0.166665767f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Vec result = (Vec)((UintVec)p + (n << 23));
  result = x <= kHighest ? result : x + __builtin_inff();
  return x < kLowest ? splat(0.0f) : result;
}

}  // namespace tessera::cpu::TESSERA_ISA
