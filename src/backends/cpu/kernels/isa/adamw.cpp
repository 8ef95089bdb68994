#include "backends/cpu/kernels/adamw.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

#if defined(__AVX512F__)
// Whole vectors past the caches: nobody reads them until the next step.
TESSERA_INLINE void write(AllLanesAhead, BF16* p, Vec v) {
  if ((uintptr_t)p % sizeof(HalfVec) != 0) return store(p, v);
  _mm256_stream_si256((__m256i*)p, (__m256i)narrow(v));
}
#endif
template <class Lanes>
TESSERA_INLINE void write(Lanes lanes, BF16* p, Vec v) {
  lanes.store(p, v);
}

template <bool kShadow>
void update(const AdamW& args, const AdamWFactors& factors, int64_t begin, int64_t end) {
  const AdamWFactors f = factors;  // a copy: stores to w, m and v might else change it
  float *w = args.w + begin, *m = args.m + begin, *v = args.v + begin;
  const float* g = args.g + begin;
  BF16* shadow = kShadow ? args.shadow + begin : nullptr;
  for_vectors(end - begin, [=](auto lanes, int64_t i) {
    Vec gradient = lanes.load(g + i) * f.scale, weight = lanes.load(w + i);
    Vec first = f.beta1 * lanes.load(m + i) + f.one_minus_beta1 * gradient;
    Vec second = f.beta2 * lanes.load(v + i) + f.one_minus_beta2 * (gradient * gradient);
    Vec step = first * f.inverse_m / (sqrt(second) * f.inverse_root_v + f.epsilon);
    weight = weight - f.lr * (step + f.decay * weight);
    lanes.store(m + i, first);
    lanes.store(v + i, second);
    lanes.store(w + i, weight);
    if constexpr (kShadow) write(lanes, shadow + i, weight);
  });
}

}  // namespace

void adamw_range(const AdamW& args, const AdamWFactors& factors, int64_t begin, int64_t end) {
  if (args.shadow) {
    update<true>(args, factors, begin, end);
#if defined(__AVX512F__)
    _mm_sfence();
#endif
    return;
  }
  update<false>(args, factors, begin, end);
}

}  // namespace tessera::cpu::TESSERA_ISA
