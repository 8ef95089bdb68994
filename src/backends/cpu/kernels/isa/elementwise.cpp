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
void accumulate_as(const T* x, float* y, int64_t n) {
  for_vectors(
      n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(y + i) + lanes.load(x + i)); });
}

template <class T>
void scale_as(const T* x, float factor, T* y, int64_t n) {
  for_vectors(n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(x + i) * factor); });
}

template <class From, class To>
void convert(const From* x, To* y, int64_t n) {
  for_vectors(n, [&](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(x + i)); });
}

template <class T>
bool finite(const T* x, int64_t n) {
  Vec worst{};  // x - x is 0 for a finite x, otherwise NaN
  for_vectors(n, [&](auto lanes, int64_t i) {
    Vec v = lanes.load(x + i);
    worst += v - v;
  });
  return sum_lanes(worst) == 0.0f;
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

void accumulate_range(DType dtype, const void* x, float* y, int64_t begin, int64_t end) {
  if (dtype == DType::kF32) {
    accumulate_as((const float*)x + begin, y + begin, end - begin);
  } else {
    accumulate_as((const BF16*)x + begin, y + begin, end - begin);
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

bool all_finite_range(DType dtype, const void* x, int64_t begin, int64_t end) {
  if (dtype == DType::kF32) return finite((const float*)x + begin, end - begin);
  return finite((const BF16*)x + begin, end - begin);
}

}  // namespace tessera::cpu::TESSERA_ISA
