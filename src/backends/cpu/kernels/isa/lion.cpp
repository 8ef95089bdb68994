#include "backends/cpu/kernels/lion.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

// 1, -1, or 0 of 0: the sign bit on the bits of 1, where there is a number.
TESSERA_INLINE Vec sign(Vec v) {
  UintVec one = ((UintVec)v & 0x80000000u) | 0x3f800000u;
  return (Vec)(one & (UintVec)(v != 0.0f));
}

}  // namespace

void lion_range(const Lion& args, float decay, int64_t begin, int64_t end) {
  const float lr = *args.lr, scale = *args.scale;
  const float beta1 = (float)args.beta1, one_minus_beta1 = (float)(1 - args.beta1);
  const float beta2 = (float)args.beta2, one_minus_beta2 = (float)(1 - args.beta2);
  float *w = args.w + begin, *m = args.m + begin;
  const float* g = args.g + begin;
  for_vectors(end - begin, [=](auto lanes, int64_t i) {
    Vec gradient = lanes.load(g + i) * scale, moment = lanes.load(m + i),
        weight = lanes.load(w + i);
    Vec direction = sign(beta1 * moment + one_minus_beta1 * gradient);
    lanes.store(m + i, beta2 * moment + one_minus_beta2 * gradient);
    lanes.store(w + i, weight - lr * (direction + decay * weight));
  });
}

}  // namespace tessera::cpu::TESSERA_ISA
