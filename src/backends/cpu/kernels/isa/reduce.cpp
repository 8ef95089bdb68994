#include "backends/cpu/kernels/reduce.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <bool kSquared>
void blocks(const float* x, int64_t n, int64_t begin, int64_t end, double* sums) {
  for (int64_t b = begin; b < end; ++b) {
    const float* block = x + b * kReduceBlock;
    int64_t rest = n - b * kReduceBlock;
    Vec total{};
    for_vectors(rest < kReduceBlock ? rest : kReduceBlock, [&](auto lanes, int64_t i) {
      Vec v = lanes.load(block + i);
      total += kSquared ? v * v : v;
    });
    sums[b] = sum_lanes(total);
  }
}

}  // namespace

void sum_blocks(const float* x, int64_t n, int64_t begin, int64_t end, double* sums) {
  blocks<false>(x, n, begin, end, sums);
}

void square_blocks(const float* x, int64_t n, int64_t begin, int64_t end, double* sums) {
  blocks<true>(x, n, begin, end, sums);
}

}  // namespace tessera::cpu::TESSERA_ISA
