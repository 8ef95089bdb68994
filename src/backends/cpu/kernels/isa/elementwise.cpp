#include "backends/cpu/kernels/elementwise.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void add_as(const T* a, const T* b, T* y, int64_t n) {
  for_vectors(
      n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(a + i) + lanes.load(b + i)); });
}

template <class T>
void add_bias_as(const T* x, const T* bias, T* y, int64_t width, int64_t rows) {
  for (; rows > 0; --rows, x += width, y += width) add_as(x, bias, y, width);
}

template <class T>
void scale_as(const T* x, float factor, T* y, int64_t n) {
  for_vectors(n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(x + i) * factor); });
}

template <class From, class To>
void convert(const From* x, To* y, int64_t n) {
  for_vectors(n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(x + i)); });
}

// f16 to float and back, as base/float16.h says.
TESSERA_INLINE Vec from_half(HalfVec h) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_cvtph_ps(0xffff, (__m256i)h);
#elif defined(__AVX2__)
  return (Vec)_mm256_cvtph_ps((__m128i)h);
#elif defined(__aarch64__)
  return (Vec)vcvt_f32_f16((float16x4_t)h);
#else
  UintVec u = __builtin_convertvector(h, UintVec), m = u & 0x7fffu;
  UintVec special = 0x7f800000u | (m << 13) | (m > 0x7c00u ? UintVec{} + 0x400000u : UintVec{});
  UintVec r = m < 0x7c00u ? (m << 13) + 0x38000000u : special;
  Vec subnormal = __builtin_convertvector((IntVec)m, Vec) * 0x1p-24f;
  return (Vec)((m < 0x400u ? (UintVec)subnormal : r) | ((u & 0x8000u) << 16));
#endif
}
TESSERA_INLINE HalfVec to_half(Vec v) {
#if defined(__AVX512F__)
  return (HalfVec)_mm512_maskz_cvtps_ph(0xffff, (__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX2__)
  return (HalfVec)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
  return (HalfVec)vcvt_f16_f32((float32x4_t)v);
#else
  UintVec u = (UintVec)v, m = u & 0x7fffffffu;
  UintVec normal = (m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13;
  UintVec subnormal = (UintVec)((Vec)m + 0.5f) - 0x3f000000u;
  UintVec r = m < 0x38800000u ? subnormal : normal;
  r = m < 0x477ff000u ? r : UintVec{} + 0x7c00u;
  r = m > 0x7f800000u ? 0x7e00u | ((m >> 13) & 0x3ffu) : r;
  return __builtin_convertvector(r | ((u >> 16) & 0x8000u), HalfVec);
#endif
}

}  // namespace

void add_range(DType dtype, const void* a, const void* b, void* y, int64_t begin, int64_t end) {
  if (dtype == DType::kF32) {
    add_as((const float*)a + begin, (const float*)b + begin, (float*)y + begin, end - begin);
  } else {
    add_as((const BF16*)a + begin, (const BF16*)b + begin, (BF16*)y + begin, end - begin);
  }
}

void add_bias_rows(DType dtype, const void* x, const void* bias, void* y, int64_t width,
                   int64_t begin, int64_t end) {
  int64_t at = begin * width;
  if (dtype == DType::kF32) {
    add_bias_as((const float*)x + at, (const float*)bias, (float*)y + at, width, end - begin);
  } else {
    add_bias_as((const BF16*)x + at, (const BF16*)bias, (BF16*)y + at, width, end - begin);
  }
}

void scale_range(DType dtype, const void* x, float factor, void* y, int64_t begin, int64_t end) {
  if (dtype == DType::kF32) {
    scale_as((const float*)x + begin, factor, (float*)y + begin, end - begin);
  } else {
    scale_as((const BF16*)x + begin, factor, (BF16*)y + begin, end - begin);
  }
}

void narrow_range(const float* x, BF16* y, int64_t begin, int64_t end) {
  convert(x + begin, y + begin, end - begin);
}

void widen_range(const BF16* x, float* y, int64_t begin, int64_t end) {
  convert(x + begin, y + begin, end - begin);
}

void narrow_half_range(const float* x, F16* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kLanes) {
    int64_t count = end - i < kLanes ? end - i : kLanes;
    HalfVec h = to_half(count == kLanes ? load(x + i) : load_first(x + i, count));
    __builtin_memcpy((void*)(y + i), &h, (size_t)count * sizeof(F16));
  }
}

void widen_half_range(const F16* x, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kLanes) {
    int64_t count = end - i < kLanes ? end - i : kLanes;
    HalfVec h{};
    __builtin_memcpy(&h, x + i, (size_t)count * sizeof(F16));
    Vec v = from_half(h);
    if (count == kLanes) {
      store(y + i, v);
    } else {
      store_first(y + i, v, count);
    }
  }
}

}  // namespace tessera::cpu::TESSERA_ISA
