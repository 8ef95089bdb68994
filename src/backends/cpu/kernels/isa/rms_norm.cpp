#include "backends/cpu/kernels/rms_norm.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void forward(const RmsNormForward& args, int64_t begin, int64_t end) {
  int64_t width = args.width;
  const T* w = (const T*)args.w;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = (const T*)args.x + row * width;
    T* y = (T*)args.y + row * width;
    Vec squares{};
    for_vectors(width, [&](auto lanes, int64_t i) {
      Vec v = lanes.load(x + i);
      squares += v * v;
    });
    // In f64: whatever rstd is off by, the whole row is off by.
    double mean = (double)sum_lanes(squares) / (double)width;
    float rstd = (float)(1.0 / __builtin_sqrt(mean + args.epsilon));
    args.rstd[row] = rstd;
    for_vectors(width, [&](auto lanes, int64_t i) {
      lanes.store(y + i, lanes.load(x + i) * rstd * lanes.load(w + i));
    });
  }
}

template <class T>
void backward(const RmsNormBackward& args, int64_t begin, int64_t end, float* partial_dw) {
  int64_t width = args.width;
  const T* w = (const T*)args.w;
  __builtin_memset(partial_dw, 0, (size_t)width * sizeof(float));
  for (int64_t row = begin; row < end; ++row) {
    const T* x = (const T*)args.x + row * width;
    const T* dy = (const T*)args.dy + row * width;
    const T* added = args.added == nullptr ? nullptr : (const T*)args.added + row * width;
    T* dx = (T*)args.dx + row * width;
    float rstd = args.rstd[row];
    Vec dot{};
    for_vectors(width, [&](auto lanes, int64_t i) {
      dot += lanes.load(dy + i) * lanes.load(w + i) * (lanes.load(x + i) * rstd);
    });
    float mean = sum_lanes(dot) / (float)width;
    for_vectors(width, [&](auto lanes, int64_t i) {
      Vec h = lanes.load(x + i) * rstd, d = lanes.load(dy + i);
      lanes.store(partial_dw + i, lanes.load(partial_dw + i) + d * h);
      Vec v = rstd * (d * lanes.load(w + i) - h * mean);
      lanes.store(dx + i, added == nullptr ? v : v + lanes.load(added + i));
    });
  }
}

}  // namespace

void rms_norm_forward_rows(const RmsNormForward& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return forward<float>(args, begin, end);
  forward<BF16>(args, begin, end);
}

void rms_norm_backward_rows(const RmsNormBackward& args, int64_t begin, int64_t end,
                            float* partial_dw) {
  if (args.dtype == DType::kF32) return backward<float>(args, begin, end, partial_dw);
  backward<BF16>(args, begin, end, partial_dw);
}

}  // namespace tessera::cpu::TESSERA_ISA
