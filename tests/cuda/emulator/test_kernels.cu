// Kernels of the emulator's own tests. `mistake` plants one that has to be found; 0: none.
#include "device.cuh"

namespace tessera::cuda {
namespace {

__device__ __forceinline__ float sum_of_warp(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}

}  // namespace

TESSERA_KERNEL(256, test_add, const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) c[i] = a[i] + b[i];
}

// 256 threads; each row of 256 is summed by its block, twice, with the same scratch memory.
TESSERA_KERNEL(256, test_block_sum, const float* x, float* sums, int mistake) {
  __shared__ float scratch[8];
  const int thread = static_cast<int>(threadIdx.x);
  const float own = x[blockIdx.x * 256 + threadIdx.x];
  if (mistake == 4 && thread >= 224) return;  // ends before the barrier
  float total = 0;
  for (int round = 0; round < 2; ++round) {
    float v = own;
    if (mistake == 5) {
      if (thread % 32 < 16) v = sum_of_warp(v);  // half of the lanes that the mask names
    } else if (mistake == 6) {
      const unsigned half = thread % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
      v += __shfl_xor_sync(half, v, 16);  // from the other half
    } else {
      v = sum_of_warp(v);
    }
    if (thread % 32 == 0) scratch[thread / 32] = v;
    if (mistake == 3) {
      if (thread < 128) __syncthreads();  // half of the block
    } else if (mistake == 7) {
      if (thread < 128) {
        __syncthreads();
      } else {
        __syncthreads();  // another one
      }
    } else if (mistake != 1) {
      __syncthreads();
    }
    total = 0;
    for (int w = 0; w < 8; ++w) total += scratch[w];
    if (mistake != 2) __syncthreads();  // the scratch memory is used again
  }
  if (thread == 0) sums[blockIdx.x] = total;
}

// 64 threads; y = x reversed in tiles of 1 KiB that come by asynchronous copies, two stages.
TESSERA_KERNEL(64, test_tiles, const uint4* x, uint4* y, int tiles, int mistake) {
  TESSERA_DYNAMIC_SHARED(uint4, stage);  // [2][64]
  const int thread = static_cast<int>(threadIdx.x);
  auto load = [&](int tile) {
    if (tile < tiles) {
      const char* from = reinterpret_cast<const char*>(x + tile * 64 + thread);
      copy_async16(&stage[tile % 2 * 64 + thread], from + (mistake == 6 ? 8 : 0));
    }
    if (mistake != 7) copy_async_commit();
  };
  if (mistake == 8 && thread == 0) y[0] = stage[70];  // what a block before left there
  load(0);
  for (int tile = 0; tile < tiles; ++tile) {
    load(tile + 1);
    if (mistake == 1) {
      // no wait
    } else if (mistake == 2) {
      copy_async_wait<2>();  // a group too few
    } else {
      copy_async_wait<1>();
    }
    if (mistake != 3) __syncthreads();
    y[tile * 64 + thread] = stage[tile % 2 * 64 + 63 - thread];
    if (mistake == 5 && thread == 0) y[tile * 64] = stage[128];  // past what the launch gives
    if (mistake != 4) __syncthreads();  // the next copies go where others still read
  }
}

// 128 threads, four blocks; y[i] = 2 x[i].
TESSERA_KERNEL(128, test_global, const float* x, float* y, int n, float* other, int mistake) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  float v = x[i];
  if (mistake == 1) v = x[i + 1];                             // the last one is past the end
  if (mistake == 2) y[i / 256] = v;                           // written by two blocks
  if (mistake == 3) v += i % 128 ? y[i - 1] : 0;              // what the neighbour writes
  if (mistake == 4) v += other[i];                            // nobody has written it
  if (mistake == 5 && i < n - 4) {                            // not at a multiple of 16 bytes
    const float4 four = *reinterpret_cast<const float4*>(x + i + 1 - i % 4);
    v += four.x;
  }
  if (mistake == 6) {
    float few[4] = {v, v, v, v};
    few[(i % 8) / (n > 5 ? 1 : 2)] = 0;  // eight of four
    v = few[i % 4];
  }
  if (mistake == 7 && i == 5) other[0] = v;                   // of the host, or freed
  if (mistake == 8) y[(i + 1) % n] = v;                       // then written below as well
  y[i] = 2 * v;
}

// 96 threads; counts numbers above a bound with integer atomics, and finds the largest.
TESSERA_KERNEL(96, test_count, const int* x, int n, int bound, int* count, int* largest,
               int mistake) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  if (x[i] > bound) {
    if (mistake == 1) {
      *count += 1;
    } else {
      atomicAdd(count, 1);
    }
  }
  atomicMax(largest, x[i]);
  if (mistake == 2 && i == 0) count[1] = *largest;  // others may still change it
}

// 32 threads exchange with their neighbours by shared memory.
TESSERA_KERNEL(32, test_warp, const float* x, float* y, int mistake) {
  __shared__ float values[32];
  const int lane = static_cast<int>(threadIdx.x);
  values[lane] = x[lane];
  if (mistake == 1) {
    // nothing in between
  } else if (mistake == 2) {
    __shfl_sync(0xffffffffu, 0, 0);  // does not order memory
  } else {
    __syncwarp();
  }
  y[lane] = values[31 - lane];
}

// Neighbours write single bytes and pairs of bytes.
TESSERA_KERNEL(64, test_bytes, uint8_t* bytes, uint16_t* pairs, const uint8_t* from) {
  const int i = static_cast<int>(threadIdx.x);
  bytes[i] = static_cast<uint8_t>(from[63 - i] + 1);
  pairs[i] = static_cast<uint16_t>(i);
  __syncthreads();
  pairs[64 + i] = static_cast<uint16_t>(pairs[63 - i] + bytes[63 - i]);
}

// 32 threads: each gives the address of one row of 8 elements, as they lie.
TESSERA_KERNEL(32, test_load_matrix, const uint4* rows, uint32_t* registers, int transposed,
               int mistake) {
  __shared__ __align__(16) uint4 tile[33];
  const int lane = static_cast<int>(threadIdx.x);
  tile[lane] = rows[lane];
  if (lane == 0) tile[32] = rows[0];
  if (mistake != 1) __syncthreads();
  const char* row = reinterpret_cast<const char*>(&tile[lane]) + (mistake == 2 ? 4 : 0);
  if (mistake == 3 && lane >= 16) return;
  uint32_t r[4];
  if (transposed) {
    load_matrix_x4_transposed(r, row);
  } else {
    load_matrix_x4(r, row);
  }
  for (int k = 0; k < 4; ++k) registers[k * 32 + lane] = r[k];
}

// 32 threads, d = a b + c with the registers of each lane as they are given.
TESSERA_KERNEL(32, test_mma, const uint32_t* a, const uint32_t* b, float* d) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t of_a[4];
  float of_d[4];
  for (int k = 0; k < 4; ++k) of_a[k] = a[k * 32 + lane];
  for (int k = 0; k < 4; ++k) of_d[k] = d[k * 32 + lane];
  mma_16816(of_d, of_a, b[lane], b[32 + lane]);
  for (int k = 0; k < 4; ++k) d[k * 32 + lane] = of_d[k];
}

// 40 threads: shuffles, votes and index functions, into out[thread * 12 + ...].
TESSERA_KERNEL(40, test_warp_functions, int* out) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const unsigned members = thread < 32 ? 0xffffffffu : 0xffu;
  int* at = out + thread * 12;
  at[0] = __shfl_sync(members, thread, 3);
  at[1] = __shfl_xor_sync(members, thread, 5);
  at[2] = __shfl_up_sync(members, thread, 2);
  at[3] = __shfl_down_sync(members, thread, 1, 8);
  at[4] = __shfl_sync(members, thread, 6, 4);
  at[5] = static_cast<int>(__ballot_sync(members, lane % 3 == 0));
  at[6] = __any_sync(members, lane == 7);
  at[7] = __all_sync(members, lane < 8);
  const double wide = __shfl_xor_sync(members, thread + 0.25, 1);
  at[8] = static_cast<int>(wide * 4);
  at[9] = static_cast<int>(__umulhi(0x80000001u, static_cast<unsigned>(thread) * 4u));
  at[10] = __popc(static_cast<unsigned>(thread));
  at[11] = static_cast<int>(pack_bf16(1.00390625f, 1.01171875f));
}

TESSERA_KERNEL(256, test_approximations, const float* x, float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  y[i] = exp2_approximate(x[i]);
  y[n + i] = log2_approximate(x[i]);
}

}  // namespace tessera::cuda
