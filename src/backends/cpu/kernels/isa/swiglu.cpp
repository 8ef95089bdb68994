#include "backends/cpu/kernels/swiglu.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void forward(const SwigluForward& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = (const T*)args.gate + row * args.gate_stride;
    const T* up = (const T*)args.up + row * args.up_stride;
    T* y = (T*)args.y + row * args.y_stride;
    for_vectors(args.width, [&](auto lanes, int64_t i) {
      Vec g = lanes.load(gate + i);
      lanes.store(y + i, g / (1.0f + exp(-g)) * lanes.load(up + i));
    });
  }
}

template <class T>
void backward(const SwigluBackward& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = (const T*)args.gate + row * args.gate_stride;
    const T* up = (const T*)args.up + row * args.up_stride;
    const T* dy = (const T*)args.dy + row * args.dy_stride;
    T* dgate = (T*)args.dgate + row * args.dgate_stride;
    T* dup = (T*)args.dup + row * args.dup_stride;
    for_vectors(args.width, [&](auto lanes, int64_t i) {
      Vec g = lanes.load(gate + i), u = lanes.load(up + i), d = lanes.load(dy + i);
      Vec s = 1.0f / (1.0f + exp(-g));
      lanes.store(dgate + i, d * u * s * (1.0f + g * (1.0f - s)));
      lanes.store(dup + i, d * (g * s));
    });
  }
}

}  // namespace

void swiglu_forward_rows(const SwigluForward& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return forward<float>(args, begin, end);
  forward<BF16>(args, begin, end);
}

void swiglu_backward_rows(const SwigluBackward& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return backward<float>(args, begin, end);
  backward<BF16>(args, begin, end);
}

}  // namespace tessera::cpu::TESSERA_ISA
