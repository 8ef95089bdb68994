// Looks for ids that are outside of their table, before a kernel that takes zeros for them: one block
// of 256 threads, so that what is found is always the same.
#include "elements.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// The first of n ids that is not in [0, rows) and not `ignored`; nothing is written where there is
// none.
template <class Id>
__device__ __forceinline__ void first_outside(const Id* ids, IdFault* fault, int64_t n,
                                              int64_t rows, int64_t ignored) {
  __shared__ int64_t first[kThreads];
  int64_t mine = n;
  for (int64_t i = threadIdx.x; i < n && mine == n; i += kThreads) {
    const int64_t id = ids[i];
    if ((id < 0 || id >= rows) && id != ignored) mine = i;
  }
  first[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && first[threadIdx.x + half] < first[threadIdx.x])
      first[threadIdx.x] = first[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x != 0 || first[0] == n) return;
  fault->id = ids[first[0]];
  fault->rows = rows;
  fault->position_after = first[0] + 1;
}

}  // namespace

// `fault` is in pinned memory of the host.
TESSERA_KERNEL(256, first_outside_i32, const int32_t* ids, IdFault* fault, int64_t n, int64_t rows,
               int64_t ignored) {
  first_outside(ids, fault, n, rows, ignored);
}
TESSERA_KERNEL(256, first_outside_i64, const int64_t* ids, IdFault* fault, int64_t n, int64_t rows,
               int64_t ignored) {
  first_outside(ids, fault, n, rows, ignored);
}

}  // namespace tessera::cuda
