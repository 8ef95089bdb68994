// One query against a cache: bound by reading keys and values, so each is read once for all query
// heads of the group. Softmax on the way (Dao et al., arXiv:2205.14135, algorithm 1).
#include "backends/cpu/kernels/cached_attention.h"

#include "backends/cpu/kernels/isa/attention_unit.h"
#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr float kLowest = -3.402823466e38f;
// Keys at a time; their scores stay in L1.
constexpr int64_t kKeys = 64;
// Keys that are asked for ahead.
constexpr int64_t kKeysAhead = 16;

struct Buffers {
  float *q, *out;        // [group][width]
  float* scores;         // [group][kKeys]
  float *highest, *sum;  // [group]
  int64_t group, width;
};
Buffers carve(const CachedAttention& args, Scratch& scratch) {
  Buffers b;
  b.group = args.heads / args.kv_heads;
  b.width = round_up(args.head_dim, kLanes);
  b.q = scratch.take<float>(b.group * b.width);
  b.out = scratch.take<float>(b.group * b.width);
  b.scores = scratch.take<float>(b.group * kKeys);
  b.highest = scratch.take<float>(b.group);
  b.sum = scratch.take<float>(b.group);
  return b;
}

// Elements of a row behind the last are zero in q, so keys read zeros there too.
template <class T>
TESSERA_INLINE float product(const float* q, const T* key, int64_t n) {
  Vec even{}, odd{};
  int64_t d = 0;
  for (; d + 2 * kLanes <= n; d += 2 * kLanes) {
    even += load(q + d) * load(key + d);
    odd += load(q + d + kLanes) * load(key + d + kLanes);
  }
  for_vectors_apart(
      n - d, [&](auto lanes, int64_t i) { even += load(q + d + i) * lanes.load(key + d + i); });
  return sum_lanes(even + odd);
}

// out += p[0] v[0] + p[1] v[1] + ...: `count` values, `stride` apart.
template <class T>
TESSERA_INLINE void accumulate(const float* p, const T* v, int64_t stride, int64_t count, int64_t n,
                               float* out) {
  int64_t u = 0;
  for (; u + 4 <= count; u += 4) {
    const T* at = v + u * stride;
    for_vectors_apart(n, [&](auto lanes, int64_t d) {
      Vec first = p[u] * lanes.load(at + d) + p[u + 1] * lanes.load(at + stride + d);
      Vec second =
          p[u + 2] * lanes.load(at + 2 * stride + d) + p[u + 3] * lanes.load(at + 3 * stride + d);
      store(out + d, load(out + d) + (first + second));
    });
  }
  for (; u < count; ++u) {
    const T* at = v + u * stride;
    for_vectors_apart(n, [&](auto lanes, int64_t d) {
      store(out + d, load(out + d) + p[u] * lanes.load(at + d));
    });
  }
}

// Scores of `count` keys become exp(score - highest so far); sum and output shrink to it.
TESSERA_INLINE void online_softmax(float* scores, int64_t count, float* highest, float* sum,
                                   float* out, int64_t width) {
  Vec largest = splat(*highest);
  for_vectors_apart(count, [&](auto lanes, int64_t u) {
    largest = max(lanes.load(scores + u, kLowest), largest);
  });
  float now = max_lanes(largest);
  Vec shrink = exp(splat(*highest - now)), total{};
  for_vectors_apart(count, [&](auto lanes, int64_t u) {
    Vec p = exp(lanes.load(scores + u, -__builtin_inff()) - now);
    total += p;
    lanes.store(scores + u, p);
  });
  *sum = *sum * shrink[0] + sum_lanes(total);
  *highest = now;
  for (int64_t d = 0; d < width; d += kLanes) store(out + d, load(out + d) * shrink);
}

// Asks for a row: those of one head lie apart, where no hardware prefetcher follows.
template <class T>
TESSERA_INLINE void ask(const T* row, int64_t n) {
  for (int64_t d = 0; d < n; d += 64 / (int64_t)sizeof(T)) __builtin_prefetch(row + d);
}

template <class T>
void one_query(const CachedAttention& args, int64_t batch, int64_t kv_head, int64_t query,
               char* memory) {
  Scratch scratch{memory};
  Buffers b = carve(args, scratch);
  int64_t n = args.head_dim, stride = args.kv_heads * n, place = args.start[batch] + query;
  int64_t row = (batch * args.queries + query) * args.heads + kv_head * b.group;
  const T* q = (const T*)args.q + row * n;
  const T* keys = (const T*)args.k + args.row[batch] * args.capacity * stride + kv_head * n;
  const T* values = (const T*)args.v + args.row[batch] * args.capacity * stride + kv_head * n;
  __builtin_memset(b.out, 0, (size_t)(b.group * b.width) * sizeof(float));
  __builtin_memset(b.q, 0, (size_t)(b.group * b.width) * sizeof(float));
  for (int64_t h = 0; h < b.group; ++h) {
    for_vectors_apart(
        n, [&](auto lanes, int64_t d) { store(b.q + h * b.width + d, lanes.load(q + h * n + d)); });
    b.highest[h] = kLowest;
    b.sum[h] = 0;
  }
  int64_t begin = args.window > 0 ? larger(0, place - args.window + 1) : 0;
  for (int64_t first = begin; first <= place; first += kKeys) {
    int64_t count = smaller(kKeys, place + 1 - first);
    for (int64_t u = 0; u < count; ++u) {
      const T* key = keys + (first + u) * stride;
      ask(key + kKeysAhead * stride, n);
      ask(values + (first + u) * stride, n);
      for (int64_t h = 0; h < b.group; ++h)
        b.scores[h * kKeys + u] = product(b.q + h * b.width, key, n) * args.scale;
    }
    for (int64_t h = 0; h < b.group; ++h) {
      float *scores = b.scores + h * kKeys, *out = b.out + h * b.width;
      online_softmax(scores, count, b.highest + h, b.sum + h, out, b.width);
      accumulate(scores, values + first * stride, stride, count, n, out);
    }
  }
  for (int64_t h = 0; h < b.group; ++h) {
    float inverse = 1 / b.sum[h];
    T* o = (T*)args.o + (row + h) * n;
    for_vectors_apart(n, [&](auto lanes, int64_t d) {
      lanes.store(o + d, load(b.out + h * b.width + d) * inverse);
    });
  }
}

}  // namespace

int64_t cached_attention_scratch(const CachedAttention& args) {
  Scratch count{nullptr};
  carve(args, count);
  return count.used;
}

void cached_attention_query(const CachedAttention& args, int64_t batch, int64_t kv_head,
                            int64_t query, char* scratch) {
  args.dtype == DType::kF32 ? one_query<float>(args, batch, kv_head, query, scratch)
                            : one_query<BF16>(args, batch, kv_head, query, scratch);
}

}  // namespace tessera::cpu::TESSERA_ISA
