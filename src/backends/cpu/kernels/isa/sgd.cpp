#include "backends/cpu/kernels/sgd.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {

void sgd_range(const Sgd& args, float decay, int64_t begin, int64_t end) {
  const float lr = *args.lr, scale = *args.scale, momentum = (float)args.momentum;
  float *w = args.w + begin, *m = args.m + begin;
  const float* g = args.g + begin;
  for_vectors(end - begin, [=](auto lanes, int64_t i) {
    Vec weight = lanes.load(w + i);
    Vec gradient = lanes.load(g + i) * scale + decay * weight;
    Vec moment = momentum * lanes.load(m + i) + gradient;
    lanes.store(m + i, moment);
    lanes.store(w + i, weight - lr * moment);
  });
}

}  // namespace tessera::cpu::TESSERA_ISA
