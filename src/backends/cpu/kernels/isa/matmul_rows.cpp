#include "backends/cpu/kernels/matmul_rows.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

// Of w, asked for before they are multiplied. A thread's own loads keep too few lines on their way
// from memory; one text is continued in 0.65 of the time so.
constexpr int64_t kAheadBytes = 6144;
// Rows of x that go with two of w: their sums fill the registers.
constexpr int kGroup = kLanes == 16 ? 4 : 2;

// y[m][r] of M rows of x and R rows of w. Each load serves all its partners, and memory sees R
// streams. The order of a sum is the same for every M and R.
template <int M, int R, class T>
TESSERA_INLINE void products(const MatmulRows& args, int64_t first, int64_t row, float (&y)[M][R]) {
  const float* x = args.x + first * args.x_stride;
  const T* w = (const T*)args.w + row * args.w_stride;
  Vec even[M][R], odd[M][R];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) even[m][r] = odd[m][r] = Vec{};
  }
  auto step = [&](auto lanes, int64_t k, Vec(&sums)[M][R]) __attribute__((always_inline)) {
    Vec columns[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      __builtin_prefetch((const char*)(w + r * args.w_stride + k) + kAheadBytes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) columns[r] = lanes.load(w + r * args.w_stride + k);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      Vec values = lanes.load(x + m * args.x_stride + k);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[m][r] += values * columns[r];
    }
  };
  int64_t k = 0;
  for (; k + 2 * kLanes <= args.k; k += 2 * kLanes) {
    step(AllLanes{}, k, even);
    step(AllLanes{}, k + kLanes, odd);
  }
  for_vectors_apart(args.k - k, [&](auto lanes, int64_t i) { step(lanes, k + i, even); });
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) y[m][r] = sum_lanes(even[m][r] + odd[m][r]);
  }
}

// Of rows [first, first + M) of x and [row, row + R) of w, rounded after the bias is added.
template <int M, int R, class T, class C>
void block(const MatmulRows& args, int64_t first, int64_t row) {
  float y[M][R];
  products<M, R, T>(args, first, row, y);
  for (int m = 0; m < M; ++m) {
    for (int r = 0; r < R; ++r) {
      float sum = y[m][r];
      if (args.bias) sum += load_one((const C*)args.bias + row + r);
      store_one((C*)args.y + (first + m) * args.y_stride + row + r, sum);
    }
  }
}

// All rows of x: those of w come from memory once, and from a cache for every further group.
template <int R, class T, class C>
void all_rows(const MatmulRows& args, int64_t row) {
  int64_t first = 0;
  for (; first + kGroup <= args.m; first += kGroup) block<kGroup, R, T, C>(args, first, row);
  if constexpr (kGroup > 2) {
    for (; first + 2 <= args.m; first += 2) block<2, R, T, C>(args, first, row);
  }
  for (; first < args.m; ++first) block<1, R, T, C>(args, first, row);
}

template <class T, class C>
void run(const MatmulRows& args, int64_t begin, int64_t end) {
  int64_t row = begin;
  // A single row of x reads w line after line, as the hardware reads it ahead.
  if (args.m > 1)
    for (; row + 2 <= end; row += 2) all_rows<2, T, C>(args, row);
  for (; row < end; ++row) all_rows<1, T, C>(args, row);
}

}  // namespace

void matmul_rows(const MatmulRows& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return run<float, float>(args, begin, end);
  if (args.c == DType::kF32) return run<BF16, float>(args, begin, end);
  run<BF16, BF16>(args, begin, end);
}

}  // namespace tessera::cpu::TESSERA_ISA
