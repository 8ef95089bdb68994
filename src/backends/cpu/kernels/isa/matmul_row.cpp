#include "backends/cpu/kernels/matmul_row.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

// R rows of w at once: each load of x serves all, and memory sees R streams.
template <int R, class T>
TESSERA_INLINE void products(const MatmulRow& args, int64_t row, float* y) {
  const T* x = (const T*)args.x;
  const T* w = (const T*)args.w + row * args.stride;
  Vec even[R], odd[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) even[r] = odd[r] = Vec{};
  int64_t k = 0;
  for (; k + 2 * kLanes <= args.k; k += 2 * kLanes) {
    Vec first = load(x + k), second = load(x + k + kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      even[r] += first * load(w + r * args.stride + k);
      odd[r] += second * load(w + r * args.stride + k + kLanes);
    }
  }
  for_vectors(args.k - k, [&](auto lanes, int64_t i) {
    Vec first = lanes.load(x + k + i);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) even[r] += first * lanes.load(w + r * args.stride + k + i);
  });
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) y[r] = sum_lanes(even[r] + odd[r]);
}

// Rounds, after the bias is added.
template <class C>
TESSERA_INLINE void write(const MatmulRow& args, int64_t row, float sum) {
  if (args.bias) sum += load_one((const C*)args.bias + row);
  store_one((C*)args.y + row, sum);
}

template <class T, class C>
void run(const MatmulRow& args, int64_t begin, int64_t end) {
  int64_t row = begin;
  float y[4];
  for (; row + 4 <= end; row += 4) {
    products<4, T>(args, row, y);
    for (int r = 0; r < 4; ++r) write<C>(args, row + r, y[r]);
  }
  for (; row < end; ++row) {
    products<1, T>(args, row, y);
    write<C>(args, row, y[0]);
  }
}

}  // namespace

void matmul_row(const MatmulRow& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return run<float, float>(args, begin, end);
  if (args.c == DType::kF32) return run<BF16, float>(args, begin, end);
  run<BF16, BF16>(args, begin, end);
}

}  // namespace tessera::cpu::TESSERA_ISA
