// What stands between the products of a head: a block a row of logits in f32, of 256 threads or, for
// long rows that are read twice, of 1,024 with as much of the row as fits into shared memory. And the
// sums over many numbers that losses and norms need.
#include "sums.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256, kKeepingThreads = 1024;

// Maximum and sum of e^(z - maximum) so far.
struct Softmax {
  float highest, sum;
};
__device__ __forceinline__ Softmax joined(Softmax a, Softmax b) {
  const float highest = larger(a.highest, b.highest);
  if (highest == -INFINITY) return {highest, 0.0f};
  return {highest, a.sum * expf(a.highest - highest) + b.sum * expf(b.highest - highest)};
}

__device__ __forceinline__ void add_eight(Softmax& mine, const Vector<float>& z) {
  float highest = z.x[0];
#pragma unroll
  for (int k = 1; k < kVector; ++k) highest = larger(highest, z.x[k]);
  if (!(highest <= mine.highest)) {
    mine.sum *= mine.highest == -INFINITY ? 0.0f : expf(mine.highest - highest);
    mine.highest = highest;
  }
  if (mine.highest == -INFINITY) return;
#pragma unroll
  for (int k = 0; k < kVector; ++k) mine.sum += expf(z.x[k] - mine.highest);  // a NaN comes through
}

// log sum e^z over the first `classes` logits of a row, by kBlock threads: the same bits in every
// thread. `seen(v, z)`: of every eight neighbours, by the thread that reads them.
template <int kBlock, class Seen>
__device__ __forceinline__ float log_sum_exp(const float* logits, int64_t classes, Softmax* scratch,
                                             Seen seen) {
  Softmax mine{-INFINITY, 0.0f};
  const int64_t vectors = classes / kVector;
  for (int64_t v = threadIdx.x; v < vectors; v += kBlock) {
    const Vector<float> z = load(logits + v * kVector);
    seen(v, z);
    add_eight(mine, z);
  }
  const int64_t last = vectors * kVector + threadIdx.x;
  if (last < classes) mine = joined(mine, {logits[last], 1.0f});
  scratch[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      scratch[threadIdx.x] = joined(scratch[threadIdx.x], scratch[threadIdx.x + half]);
    __syncthreads();
  }
  const Softmax all = scratch[0];
  return all.highest + logf(all.sum);
}

// gradient(z, i) of every logit from number `begin` on, over the row itself where its elements are
// not larger: a chunk is read by all before it is written. Behind the logits of a row up to its stride
// are numbers of any kind, or none.
template <class T, int kBlock, class Gradient>
__device__ __forceinline__ void write_gradients(const float* logits, T* dlogits, int64_t begin,
                                                int64_t classes, int64_t stride,
                                                Gradient gradient) {
  constexpr int kEach = 2;
  for (int64_t first = begin; first < stride; first += kBlock * kVector * kEach) {
    Vector<T> r[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int64_t i = first + (e * kBlock + threadIdx.x) * kVector;
      if (i + kVector <= classes) {
        const Vector<float> z = load(logits + i);
#pragma unroll
        for (int k = 0; k < kVector; ++k) r[e].x[k] = narrow<T>(gradient(z.x[k], i + k));
      } else {
#pragma unroll
        for (int k = 0; k < kVector; ++k)
          r[e].x[k] = narrow<T>(i + k < classes ? gradient(logits[i + k], i + k) : 0.0f);
      }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int64_t i = first + (e * kBlock + threadIdx.x) * kVector;
      if (i < stride) store(dlogits + i, r[e]);
    }
  }
}

// kept: logits of a row that stay in shared memory, a multiple of eight; each thread has those there
// that it has read itself.
template <class T, int kBlock>
__device__ __forceinline__ void cross_entropy_row(float* logits, const int32_t* targets,
                                                  const float* dloss, const float* dsquares,
                                                  float* losses, float* squares, int64_t classes,
                                                  int64_t stride, int64_t kept, int32_t ignored) {
  struct alignas(16) Four {
    float x[4];
  };
  TESSERA_DYNAMIC_SHARED(Four, low);  // of every eight neighbours the first four; then the others
  __shared__ Softmax scratch[kBlock];
  const int64_t row = blockIdx.x, eights = kept / kVector;
  Four* high = low + eights;
  logits += row * stride;
  const int32_t target = targets[row];
  const bool counted = target != ignored;
  float lse = 0, hit = 0;
  if (counted) {
    lse = log_sum_exp<kBlock>(logits, classes, scratch, [&](int64_t v, const Vector<float>& z) {
      if (v >= eights) return;
      low[v] = {{z.x[0], z.x[1], z.x[2], z.x[3]}};
      high[v] = {{z.x[4], z.x[5], z.x[6], z.x[7]}};
    });
    if (target >= 0 && target < classes) hit = logits[target];
  }
  if (threadIdx.x == 0) {
    losses[row] = lse - hit;
    squares[row] = lse;
  }
  if (!dloss) return;
  __syncthreads();  // all have read the target's logit
  const float at_target = *dloss, of_all = fmaf(2 * *dsquares, lse, at_target);
  const auto gradient = [&](float z, int64_t i) -> float {
    const float p = expf(z - lse) * of_all;
    return i == target ? p - at_target : p;
  };
  auto* dlogits = reinterpret_cast<T*>(logits);
  if (counted) {
    for (int64_t v = threadIdx.x; v < eights; v += kBlock) {
      const Four first = low[v], second = high[v];
      Vector<T> r;
#pragma unroll
      for (int k = 0; k < kVector; ++k)
        r.x[k] = narrow<T>(gradient(k < 4 ? first.x[k % 4] : second.x[k % 4], v * kVector + k));
      store(dlogits + v * kVector, r);
    }
  }
  write_gradients<T, kBlock>(logits, dlogits, counted ? kept : 0, counted ? classes : 0, stride,
                             gradient);
}

template <class T>
__device__ __forceinline__ void log_sum_exp_gradient_row(float* logits, const int32_t* targets,
                                                         const int32_t* valid_of, const float* lses,
                                                         const float* dlses, const float* dhits,
                                                         int64_t classes, int64_t stride) {
  const int64_t row = blockIdx.x;
  logits += row * stride;
  const int64_t valid = *valid_of < 0 ? 0 : *valid_of < classes ? *valid_of : classes;
  const int32_t target = targets[row];
  const float lse = lses[row], dlse = dlses[row], dhit = dhits[row];
  write_gradients<T, kThreads>(logits, reinterpret_cast<T*>(logits), 0, valid, stride,
                  [&](float z, int64_t i) -> float {
                    const float p = dlse * expf(z - lse);
                    return i == target ? p + dhit : p;
                  });
}

// Sum of f(0) to f(n - 1) over the block; thread 0 has it.
template <class F>
__device__ __forceinline__ float sum_in_block(int64_t n, float* scratch, F f) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += f(i);
  return block_sum<kThreads / 32>(sum, scratch);
}

// Squares of a chunk of 8,192 elements a block.
constexpr int64_t kChunk = 8192;
template <class T>
__device__ __forceinline__ void sum_squares_chunk(const T* x, float* partial, int64_t n) {
  __shared__ float scratch[kThreads / 32];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk;
  const bool vectors = aligned(x) && begin + kChunk <= n;
  float sum = 0;
  for (int64_t first = begin + threadIdx.x * kVector; first < begin + kChunk && first < n;
       first += kThreads * kVector) {
    if (vectors) {
      const Vector<T> v = load(x + first);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum = fmaf(widen(v.x[k]), widen(v.x[k]), sum);
    } else {
      for (int64_t i = first; i < n && i < first + kVector; ++i)
        sum = fmaf(widen(x[i]), widen(x[i]), sum);
    }
  }
  sum = block_sum<kThreads / 32>(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

// losses[row] = lse - logit of the target, squares[row] = lse, both 0 of an ignored row; and, where
// dloss is given, over each row of logits the gradient of dloss sum(losses) + dsquares
// sum(squares^2), in the dtype of the kernel's name, `stride` elements of 4 bytes a row.
#define TESSERA_CROSS_ENTROPY(suffix, T)                                                           \
  TESSERA_KERNEL(256, cross_entropy_##suffix, float* logits, const int32_t* targets,               \
                 const float* dloss, const float* dsquares, float* losses, float* squares,         \
                 int64_t classes, int64_t stride, int64_t kept, int32_t ignored) {                 \
    cross_entropy_row<T, kThreads>(logits, targets, dloss, dsquares, losses, squares, classes,     \
                                   stride, kept, ignored);                                         \
  }                                                                                                \
  TESSERA_KERNEL(1024, cross_entropy_keeping_##suffix, float* logits, const int32_t* targets,      \
                 const float* dloss, const float* dsquares, float* losses, float* squares,         \
                 int64_t classes, int64_t stride, int64_t kept, int32_t ignored) {                 \
    cross_entropy_row<T, kKeepingThreads>(logits, targets, dloss, dsquares, losses, squares,       \
                                          classes, stride, kept, ignored);                         \
  }
TESSERA_CROSS_ENTROPY(f32, float)
TESSERA_CROSS_ENTROPY(bf16, Bf16)

// lse and the target's logit among the first *valid_of classes; minus infinity and 0 of none.
TESSERA_KERNEL(256, log_sum_exp_rows, const float* logits, const int32_t* targets,
               const int32_t* valid_of, float* lse, float* hit, int64_t classes, int64_t stride) {
  __shared__ Softmax scratch[kThreads];
  const int64_t row = blockIdx.x;
  logits += row * stride;
  const int64_t valid = *valid_of < 0 ? 0 : *valid_of < classes ? *valid_of : classes;
  const float of_row = log_sum_exp<kThreads>(logits, valid, scratch,
                                             [](int64_t, const Vector<float>&) {});
  if (threadIdx.x != 0) return;
  const int32_t target = targets[row];
  lse[row] = of_row;
  hit[row] = target >= 0 && target < valid ? logits[target] : 0.0f;
}
TESSERA_KERNEL(256, log_sum_exp_gradient_f32, float* logits, const int32_t* targets,
               const int32_t* valid_of, const float* lse, const float* dlse, const float* dhit,
               int64_t classes, int64_t stride) {
  log_sum_exp_gradient_row<float>(logits, targets, valid_of, lse, dlse, dhit, classes, stride);
}
TESSERA_KERNEL(256, log_sum_exp_gradient_bf16, float* logits, const int32_t* targets,
               const int32_t* valid_of, const float* lse, const float* dlse, const float* dhit,
               int64_t classes, int64_t stride) {
  log_sum_exp_gradient_row<Bf16>(logits, targets, valid_of, lse, dlse, dhit, classes, stride);
}

// One block: the sum of n numbers, and that of n squares.
TESSERA_KERNEL(256, sum_all, const float* x, float* y, int64_t n) {
  __shared__ float scratch[kThreads / 32];
  const float sum = sum_in_block(n, scratch, [x](int64_t i) { return x[i]; });
  if (threadIdx.x == 0) *y = sum;
}
TESSERA_KERNEL(256, sum_all_squares, const float* x, float* y, int64_t n) {
  __shared__ float scratch[kThreads / 32];
  const float sum = sum_in_block(n, scratch, [x](int64_t i) { return x[i] * x[i]; });
  if (threadIdx.x == 0) *y = sum;
}

// partial[block]: the squares of 8,192 elements.
TESSERA_KERNEL(256, sum_squares_f32, const float* x, float* partial, int64_t n) {
  sum_squares_chunk<float>(x, partial, n);
}
TESSERA_KERNEL(256, sum_squares_bf16, const Bf16* x, float* partial, int64_t n) {
  sum_squares_chunk<Bf16>(x, partial, n);
}

// One block: how many of n numbers differ from `value`.
TESSERA_KERNEL(256, count_unequal, const int32_t* x, int64_t* y, int64_t n, int32_t value) {
  __shared__ int64_t parts[kThreads];
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) count += x[i] != value;
  parts[threadIdx.x] = count;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *y = parts[0];
}

}  // namespace tessera::cuda
