// What the kernels of attention by tensor cores share: tiles of rows of a head in shared memory, the
// parts of them that a warp multiplies, masks and dropout.
#pragma once
#include "random.cuh"

namespace tessera::cuda {

constexpr int kRows = 64;  // of a block
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.69314718055994531f;

// Rows of kWidth elements, kWidth / 8 vectors, lie so that ldmatrix, which reads eight rows at a
// time, finds them in different banks.
template <int kWidth>
__device__ __forceinline__ int head_place(int row, int vector) {
  return row * (kWidth / 8) + (vector ^ (row % 8));
}

// What this thread loads of tiles of rows of a head, one behind the other, of two tensors of one
// shape: one vector of every kStep-th row, of 128 threads. Rows from `end` on and elements from
// `width` on are zeros.
template <int kWidth>
struct RowLoader {
  static constexpr int kVectors = kWidth / 8, kStep = 128 / kVectors;
  static_assert(kStep % 8 == 0);  // all its rows have the same place among eight
  const Bf16 *next, *other;
  int64_t step;
  int end, place;
  __device__ __forceinline__ RowLoader(const Bf16* x, const Bf16* y, int64_t stride, int first,
                                       int64_t rows, int64_t width)
      : step(kStep * stride) {
    const int thread = static_cast<int>(threadIdx.x), v = thread % kVectors, row = thread / kVectors;
    end = v * 8 < width ? static_cast<int>(rows) - row : 0;
    place = head_place<kWidth>(row, v);
    next = x + (first + row) * stride + v * 8;
    other = y ? y + (first + row) * stride + v * 8 : nullptr;
  }
  // So many elements, to rows of another head.
  __device__ __forceinline__ void skip(int64_t elements) {
    next += elements;
    other += elements;
  }
  // The next kRows rows, which are [first, first + kRows), of x to a tile and of y, if there is one,
  // to that behind it; part of what the next commit takes together.
  template <int kRows, bool kBoth = true>
  __device__ __forceinline__ void load(uint4* tile, int first) {
#pragma unroll
    for (int n = 0; n < kRows / kStep; ++n) {
      uint4 *to = &tile[place + n * kStep * kVectors], *behind = to + kRows * kVectors;
      if (first + n * kStep < end) {
        copy_async16(to, next);
        if (kBoth) copy_async16(behind, other);
      } else {
        *to = uint4{0, 0, 0, 0};
        if (kBoth) *behind = uint4{0, 0, 0, 0};
      }
      next += step;
      if (kBoth) other += step;
    }
  }
};

// Rows [row, row + 16), terms [16 step, 16 step + 16) of a tile, as the left operand.
template <int kWidth>
__device__ __forceinline__ void left_part(uint32_t (&r)[4], const uint4* tile, int row, int step,
                                          int lane) {
  load_matrix_x4(r, &tile[head_place<kWidth>(row + lane % 16, step * 2 + lane / 16)]);
}
// The same rows as columns of the right operand: r[0], r[1] are of the first eight.
template <int kWidth>
__device__ __forceinline__ void right_part(uint32_t (&r)[4], const uint4* tile, int row, int step,
                                           int lane) {
  load_matrix_x4(
      r, &tile[head_place<kWidth>(row + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2)]);
}
// Rows [row, row + 16) as terms, elements [16 pair, 16 pair + 16) as columns of the right operand.
template <int kWidth>
__device__ __forceinline__ void right_part_of_terms(uint32_t (&r)[4], const uint4* tile, int row,
                                                    int pair, int lane) {
  load_matrix_x4_transposed(r, &tile[head_place<kWidth>(row + lane % 16, pair * 2 + lane / 16)]);
}

// The left operand of which a tile of 64 columns has the transpose: rows are its columns from
// `column` on, terms its rows from `row` on.
__device__ __forceinline__ void transposed_left_part(uint32_t (&r)[4], const uint4* tile, int row,
                                                     int column, int lane) {
  load_matrix_x4_transposed(
      r, &tile[head_place<64>(row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2)]);
}

// d[j] += a b for 16 rows of `tile_a` from row_a and kColumns rows of `tile_b`.
template <int kWidth, int kColumns>
__device__ __forceinline__ void multiply_rows(float (&d)[kColumns / 8][4], const uint4* tile_a,
                                              int row_a, const uint4* tile_b, int lane) {
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    uint32_t a[4];
    left_part<kWidth>(a, tile_a, row_a, step, lane);
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      uint32_t b[4];
      right_part<kWidth>(b, tile_b, j * 16, step, lane);
      mma_16816(d[2 * j], a, b[0], b[1]);
      mma_16816(d[2 * j + 1], a, b[2], b[3]);
    }
  }
}

// Results of products in registers, rounded to bf16: those of two rows, eight apart.
__device__ __forceinline__ void pack_pairs(uint32_t (&packed)[2], const float (&p)[4]) {
  packed[0] = pack_bf16(p[0], p[1]);
  packed[1] = pack_bf16(p[2], p[3]);
}

// d += a x for 16 terms, x rows of a tile from `row` on.
template <int kWidth>
__device__ __forceinline__ void multiply_16_terms(float (&d)[kWidth / 8][4], const uint32_t (&a)[4],
                                                  const uint4* tile, int row, int lane) {
#pragma unroll
  for (int j = 0; j < kWidth / 16; ++j) {
    uint32_t b[4];
    right_part_of_terms<kWidth>(b, tile, row, j, lane);
    mma_16816(d[2 * j], a, b[0], b[1]);
    mma_16816(d[2 * j + 1], a, b[2], b[3]);
  }
}
// d += p x, p of 16 x kTerms packed results, x rows of a tile.
template <int kWidth, int kTerms>
__device__ __forceinline__ void multiply_terms(float (&d)[kWidth / 8][4],
                                               const uint32_t (&p)[kTerms / 8][2],
                                               const uint4* tile, int lane) {
#pragma unroll
  for (int step = 0; step < kTerms / 16; ++step) {
    const uint32_t a[4] = {p[2 * step][0], p[2 * step][1], p[2 * step + 1][0], p[2 * step + 1][1]};
    multiply_16_terms<kWidth>(d, a, tile, step * 16, lane);
  }
}

// Keys [first, last] that query t of row b sees.
struct SeenKeys {
  int first, last;
  __device__ __forceinline__ bool has(int u) const { return u >= first && u <= last; }
};
__device__ __forceinline__ SeenKeys seen_keys(const AttentionShape& s, const int32_t* starts,
                                              int64_t b, int t) {
  const int tokens = static_cast<int>(s.tokens), window = static_cast<int>(s.window);
  if (!s.causal) return {0, tokens - 1};
  if (t >= tokens) t = tokens - 1;
  int first = window > 0 && t >= window ? t - window + 1 : 0;
  if (starts && starts[b * s.tokens + t] > first) first = starts[b * s.tokens + t];
  return {first, t};
}

// Minus infinity in the place of scores that are not seen: rows are queries t and t + 8, columns
// keys from u on.
template <int kKeys>
__device__ __forceinline__ void hide_unseen(float (&score)[kKeys / 8][4], const AttentionShape& s,
                                            const int32_t* starts, int64_t b, int t, int u) {
  const SeenKeys seen[2] = {seen_keys(s, starts, b, t), seen_keys(s, starts, b, t + 8)};
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (!seen[e / 2].has(u + j * 8 + e % 2)) score[j][e] = -INFINITY;
  }
}

// Which probabilities are kept. One call of the generator decides about four queries and two keys.
struct ProbabilityDropout {
  uint64_t key, stream, first_line, line_calls;
  uint32_t threshold;
  int64_t lines_a_head;
  // Without dropout nothing of it is used.
  __device__ __forceinline__ ProbabilityDropout(const AttentionShape& s, const int64_t* keys,
                                                const int32_t* first_head, int64_t b, int64_t head)
      : key(keys ? static_cast<uint64_t>(keys[b]) : 0),
        stream(s.stream),
        line_calls(static_cast<uint64_t>((s.tokens + 63) / 64) * 16),
        threshold(s.threshold << 16),
        lines_a_head((s.tokens + 1) / 2) {
    if (first_head) head += *first_head;
    first_line = static_cast<uint64_t>(head * lines_a_head);
  }
  __device__ __forceinline__ void next_head() { first_line += static_cast<uint64_t>(lines_a_head); }
  // Number of the call that decides about query t, key u and their neighbours.
  __device__ __forceinline__ uint64_t call(uint32_t t, uint32_t u) const {
    return (first_line + u / 2) * line_calls + t / 4;
  }
  // Whether the pair of query n % 4 and key n / 4 of a call is kept: bit bit_of(n).
  template <class BitOf>
  __device__ __forceinline__ uint32_t kept(uint64_t call, BitOf bit_of) const {
    const RandomWords words = philox(key, stream, call);
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint32_t word = words.word[n / 2], number = n % 2 ? word : word << 16;
      kept |= number >= threshold ? 1u << bit_of(n) : 0u;
    }
    return kept;
  }
};

// The half of `own` that a thread keeps, its upper bits of `upper` or the other ones, beside that
// half of the thread whose lane differs by `lanes`.
__device__ __forceinline__ uint32_t exchanged(uint32_t own, bool keeps_upper, uint32_t upper,
                                              int distance, int lanes) {
  const uint32_t other = __shfl_xor_sync(0xffffffffu, own, lanes);
  return keeps_upper ? (own & upper) | (other >> distance & ~upper)
                     : (own & ~upper) | (other << distance & upper);
}

// Of kPairs pairs of scores that a thread has, which are kept: bits 2 i and 2 i + 1 for pair i. Four
// threads, whose lanes differ by `lanes_1` and `lanes_2`, have their pairs from the same calls, two
// bits of eight each. Thread `number` of them makes calls number, number + 4, ... for all; `of_call`
// gives their bits, those of thread k from 2 k on. Then the four exchange them.
template <int kPairs, class OfCall>
__device__ __forceinline__ uint32_t kept_of_four(int number, int lanes_1, int lanes_2,
                                                 OfCall of_call) {
  static_assert(kPairs % 4 == 0 && kPairs <= 16);
  uint32_t kept = 0;
#pragma unroll 1
  for (int m = 0; m < kPairs / 4; ++m)
    kept |= of_call(static_cast<uint32_t>(number + 4 * m)) << 8 * m;
  kept = exchanged(kept, number & 2, 0xf0f0f0f0u, 4, lanes_2);
  return exchanged(kept, number & 1, 0xccccccccu, 2, lanes_1);
}

// Which of a thread's scores are kept, bit 4 j + e for score[j][e]: rows are queries t and t + 8,
// columns keys from u on. The queries of a call are four neighbouring rows of the warp.
template <int kKeys>
__device__ __forceinline__ uint32_t kept_by_rows(const ProbabilityDropout& dropout, int t, int u) {
  const uint64_t first = dropout.call(static_cast<uint32_t>(t), static_cast<uint32_t>(u));
  return kept_of_four<kKeys / 4>(t % 4, 4, 8, [&](uint32_t i) {
    return dropout.kept(first + i % 2 * 2 + i / 2 * 4 * dropout.line_calls,
                        [](int n) { return n % 4 * 2 + n / 4; });
  });
}

// Results of 16 rows times `factor`, rows from `row` on, to y; those outside are left out.
template <int kWidth>
__device__ __forceinline__ void store_rows(Bf16* y, int64_t stride, int64_t row, int64_t count,
                                           int64_t width, const float (&d)[kWidth / 8][4],
                                           const float (&factor)[2], int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t r = row + lane / 4 + half * 8;
    if (r >= count) continue;
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      if (column < width)
        *reinterpret_cast<uint32_t*>(y + r * stride + column) =
            pack_bf16(d[j][half * 2] * factor[half], d[j][half * 2 + 1] * factor[half]);
    }
  }
}

}  // namespace tessera::cuda
