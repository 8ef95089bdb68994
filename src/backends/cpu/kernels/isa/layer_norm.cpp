#include "backends/cpu/kernels/layer_norm.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

typedef float HalfOfVec __attribute__((vector_size(kLanes * 2)));
typedef double DoubleVec __attribute__((vector_size(kLanes * 4)));

TESSERA_INLINE DoubleVec to_doubles(HalfOfVec v) {
#if defined(__AVX512F__)
  return (DoubleVec)_mm512_maskz_cvtps_pd(0xff, (__m256)v);
#else
  return __builtin_convertvector(v, DoubleVec);
#endif
}

// In f64: a rounding of the sum of a row that is far from zero is not small against its spread.
template <class T>
double sum(const T* x, int64_t width) {
  DoubleVec low{}, high{};
  for_vectors(width, [&](auto lanes, int64_t i) {
    Vec v = lanes.load(x + i);
    HalfOfVec halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    low += to_doubles(halves[0]);
    high += to_doubles(halves[1]);
  });
  low += high;
  double total = 0;
  for (int i = 0; i < kLanes / 2; ++i) total += low[i];
  return total;
}

template <class T>
void forward(const LayerNormForward& args, int64_t begin, int64_t end) {
  int64_t width = args.width;
  const T *w = (const T*)args.w, *b = (const T*)args.b;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = (const T*)args.x + row * width;
    T* y = (T*)args.y + row * width;
    double exact_mean = sum(x, width) / (double)width;
    float mean = (float)exact_mean, rest = (float)(exact_mean - mean);
    Vec squares{};
    for_vectors(width, [&](auto lanes, int64_t i) {
      Vec v = lanes.load(x + i, mean) - mean;
      squares += v * v;
    });
    // In f64: whatever rstd is off by, the whole row is off by.
    double variance = (double)sum_lanes(squares) / (double)width - (double)rest * rest;
    float rstd = (float)(1.0 / __builtin_sqrt(variance + args.epsilon));
    args.mean[row] = mean;
    args.rstd[row] = rstd;
    for_vectors(width, [&](auto lanes, int64_t i) {
      Vec v = (lanes.load(x + i) - mean - rest) * rstd * lanes.load(w + i);
      lanes.store(y + i, b == nullptr ? v : v + lanes.load(b + i));
    });
  }
}

template <class T>
void backward(const LayerNormBackward& args, int64_t begin, int64_t end, float* partial_dw,
              float* partial_db) {
  int64_t width = args.width;
  const T* w = (const T*)args.w;
  __builtin_memset(partial_dw, 0, (size_t)width * sizeof(float));
  __builtin_memset(partial_db, 0, (size_t)width * sizeof(float));
  for (int64_t row = begin; row < end; ++row) {
    const T* x = (const T*)args.x + row * width;
    const T* dy = (const T*)args.dy + row * width;
    const T* added = args.added == nullptr ? nullptr : (const T*)args.added + row * width;
    T* dx = (T*)args.dx + row * width;
    float mean = args.mean[row], rstd = args.rstd[row];
    Vec total{}, dot{};
    for_vectors(width, [&](auto lanes, int64_t i) {
      Vec g = lanes.load(dy + i) * lanes.load(w + i);
      total += g;
      dot += g * ((lanes.load(x + i, mean) - mean) * rstd);
    });
    float mean_g = sum_lanes(total) / (float)width, mean_gh = sum_lanes(dot) / (float)width;
    for_vectors(width, [&](auto lanes, int64_t i) {
      Vec h = (lanes.load(x + i) - mean) * rstd, d = lanes.load(dy + i);
      lanes.store(partial_dw + i, lanes.load(partial_dw + i) + d * h);
      lanes.store(partial_db + i, lanes.load(partial_db + i) + d);
      Vec v = rstd * (d * lanes.load(w + i) - mean_g - h * mean_gh);
      lanes.store(dx + i, added == nullptr ? v : v + lanes.load(added + i));
    });
  }
}

}  // namespace

void layer_norm_forward_rows(const LayerNormForward& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return forward<float>(args, begin, end);
  forward<BF16>(args, begin, end);
}

void layer_norm_backward_rows(const LayerNormBackward& args, int64_t begin, int64_t end,
                              float* partial_dw, float* partial_db) {
  if (args.dtype == DType::kF32) return backward<float>(args, begin, end, partial_dw, partial_db);
  backward<BF16>(args, begin, end, partial_dw, partial_db);
}

}  // namespace tessera::cpu::TESSERA_ISA
