#pragma once
// Blocks of attention in f32: products, layouts, visibility. Included by isa/attention*.cpp only.
//
// Scores are kept transposed, [key][query]: the running maximum, sum, lse and delta of a query live
// in one lane, so no step of the softmax crosses lanes, and head_dim is a lane dimension of dK and
// dV only.
#include "backends/cpu/kernels/isa/attention_buffers.h"
#include "backends/cpu/kernels/isa/attention_dropout.h"
#include "backends/cpu/kernels/isa/attention_unit.h"
#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {

constexpr int64_t kBlock = kAttentionBlock;
static_assert(kLanes == kAttentionLanes);
// On the diagonal, products take keys in strips of this many and leave out the queries before them.
constexpr int64_t kStrip = 16;

// Register block of a product: rows x vectors accumulators (24 of 32 registers, or 8 of 16; on
// AArch64, where a row's number takes a register too, 16 of 32).
#if defined(__AVX512F__)
constexpr int kRows = 6, kVecs = 4;
#elif defined(__aarch64__)
constexpr int kRows = 4, kVecs = 4;
#else
constexpr int kRows = 4, kVecs = 2;
#endif

// Terms of a product that are summed in one chain. Chains of 32 leave up to 1.5 times the error of
// the decomposition, 16 at most 1.27, for 5 % of the backward's time.
constexpr int64_t kDepth = 16;

// Left operand of a product, element (i, k) at data[i * row + k * depth].
struct Left {
  const float* data;
  int64_t row, depth;
};
// Right operand, element (k, j) at data[k * stride + j].
struct Right {
  const float* data;
  int64_t stride;
};
struct Matrix {
  float* data;
  int64_t stride;
};

template <int R, int V>
TESSERA_INLINE void product_block(Left a, Right b, Matrix c, int64_t depth) {
  Vec sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = Vec{};
  int64_t k = 0;
  do {  // depth > 0; knowing that, the compiler keeps all of sum[] in registers
    Vec right[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) right[v] = load(b.data + k * b.stride + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      Vec left = a.data[r * a.row + k * a.depth] - Vec{};  // splat() would keep its addition: of -0
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] += left * right[v];
    }
  } while (++k < depth);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      float* to = c.data + r * c.stride + v * kLanes;
      store(to, load(to) + sum[r][v]);
    }
}

template <int V>
TESSERA_INLINE void product_columns(int64_t rows, int64_t depth, Left a, Right b, Matrix c) {
  auto at = [&](int64_t i) { return Left{a.data + i * a.row, a.row, a.depth}; };
  auto to = [&](int64_t i) { return Matrix{c.data + i * c.stride, c.stride}; };
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) product_block<kRows, V>(at(i), b, to(i), depth);
  for (; i + 2 <= rows; i += 2) product_block<2, V>(at(i), b, to(i), depth);
  if (i < rows) product_block<1, V>(at(i), b, to(i), depth);
}

// c[rows, columns] += a[rows, depth] b[depth, columns]; columns is a multiple of kLanes. Chains of
// kDepth terms are added up one after the other.
static inline void product(int64_t rows, int64_t columns, int64_t depth, Left a, Right b,
                           Matrix c) {
  for (int64_t k = 0; k < depth; k += kDepth) {
    int64_t terms = smaller(kDepth, depth - k), j = 0;
    Left left{a.data + k * a.depth, a.row, a.depth};
    const float* right = b.data + k * b.stride;
    for (; j + kVecs * kLanes <= columns; j += kVecs * kLanes) {
      product_columns<kVecs>(rows, terms, left, {right + j, b.stride}, {c.data + j, c.stride});
    }
    for (; j < columns; j += kLanes) {
      product_columns<1>(rows, terms, left, {right + j, b.stride}, {c.data + j, c.stride});
    }
  }
}

TESSERA_INLINE void zero(float* p, int64_t n) { __builtin_memset(p, 0, n * sizeof(float)); }

// rows x head_dim elements, `stride` apart, as f32 rows of `width` >= head_dim, zero-filled.
template <class T>
static inline void widen_rows(const T* from, int64_t stride, int64_t rows, int64_t head_dim,
                              Matrix to) {
  for (int64_t r = 0; r < rows; ++r, from += stride) {
    float* row = to.data + r * to.stride;
    zero(row, to.stride);
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) store(row + d, load(from + d));
    if (d < head_dim) store(row + d, load_first(from + d, head_dim - d));
  }
}

// Rows of f32 to columns of a [head_dim][kBlock] block; columns from `rows` on are zero.
static inline void transpose_block(Matrix from, int64_t rows, int64_t head_dim, float* to) {
  for (int64_t d = 0; d < head_dim; ++d) {
    for (int64_t r = 0; r < rows; ++r) to[d * kBlock + r] = from.data[r * from.stride + d];
    for (int64_t r = rows; r < kBlock; ++r) to[d * kBlock + r] = 0;
  }
}

// One row of n <= 256 floats, times `factor`.
template <class T>
TESSERA_INLINE void write_row(T* to, const float* from, int64_t n, float factor) {
  int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes) store(to + d, load(from + d) * factor);
  if (d < n) store_first(to + d, load(from + d) * factor, n - d);
}

// Column r of a [head_dim][kBlock] block, times factor[r * factor_step], becomes row r.
template <class T>
static inline void write_columns(const float* from, int64_t rows, int64_t head_dim,
                                 const float* factor, int64_t factor_step, T* to, int64_t stride) {
  float row[256 + kLanes];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < head_dim; ++d) row[d] = from[d * kBlock + r];
    write_row(to + r * stride, row, head_dim, factor[r * factor_step]);
  }
}

// A query block against a key block: how much of each exists, and where they are.
struct Pair {
  int64_t query, key;   // first of each
  int64_t lanes, keys;  // queries rounded up to whole vectors; keys that exist
  int64_t queries;      // queries that exist
  bool hidden, diagonal;
};
static inline Pair pair_of(const RowMask& mask, int64_t query_block, int64_t key_block) {
  const AttentionProblem& p = mask.p;
  Pair pair;
  pair.query = query_block * kBlock;
  pair.key = key_block * kBlock;
  pair.queries = smaller(kBlock, p.tokens - pair.query);
  pair.keys = smaller(kBlock, p.tokens - pair.key);
  pair.lanes = round_up(pair.queries, kLanes);
  pair.hidden = partly_hidden(mask, query_block, key_block);
  pair.diagonal = p.causal && query_block == key_block;
  return pair;
}

// Calls f(first key, keys, first query) for each strip of keys of the pair.
template <class F>
TESSERA_INLINE void for_strips(const Pair& pair, F f) {
  if (!pair.diagonal) return f(0, pair.keys, 0);
  for (int64_t first = 0; first < pair.keys; first += kStrip)
    f(first, smaller(kStrip, pair.keys - first), first);
}

TESSERA_INLINE IntVec lane_numbers(int64_t first) {
  IntVec lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = (int32_t)first + i;
  return lanes;
}

// Scores become -infinity where a query does not see the key.
static inline void hide(const RowMask& mask, const Pair& pair, float* scores) {
  SeeingQueries queries{mask, pair.query};
  for (int64_t u = 0; u < pair.keys; ++u) {
    BlockRange seeing = queries.of(pair.key + u, pair.query + pair.queries);
    for (int64_t j = 0; j < pair.lanes; j += kLanes) {
      IntVec t = lane_numbers(pair.query + j);
      IntVec visible = (t >= (int32_t)seeing.begin) & (t < (int32_t)seeing.end);
      float* at = scores + u * kBlock + j;
      store(at, visible ? load(at) : splat(-__builtin_inff()));
    }
  }
}

}  // namespace tessera::cpu::TESSERA_ISA
