// What kernels are written against. Under nvcc: CUDA and a few lines of inline PTX. Under g++ the
// same names are ordinary functions of the emulator of the tests (simt.h), which runs kernels on a
// CPU and checks every access. No other file of this folder uses `asm` or __CUDACC__.
//
// Kernels are compiled with -fmad=false and write fmaf where they want it, so that a device and the
// emulator give the same bits.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
// An entry point of at most so many threads a block, found by its name.
#define TESSERA_KERNEL(threads, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__)
// One of which a single block may fill a multiprocessor, so that it has the registers that it needs.
#define TESSERA_LARGE_KERNEL(threads, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(__VA_ARGS__)
// One of which a multiprocessor must have room for two blocks.
#define TESSERA_PAIRED_KERNEL(threads, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads, 2) name(__VA_ARGS__)
// Shared memory whose size the launch gives.
#define TESSERA_DYNAMIC_SHARED(T, name)                       \
  extern __shared__ __align__(128) unsigned char name##_raw[]; \
  T* name = reinterpret_cast<T*>(name##_raw)

namespace tessera::cuda {
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approximate(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Two f32 as packed bf16, to nearest even; `low` in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// All 64 bits of a product.
__device__ __forceinline__ uint64_t multiply_wide(uint32_t a, uint32_t b) {
  uint64_t r;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void copy_async16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kGroups>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
__device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// d += a b, of 16 x 16 by 16 x 8 in bf16, summed in f32.
__device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
}  // namespace tessera::cuda
#else
#include "simt.h"  // of the folder that the emulator's build names
#endif

namespace tessera::cuda {
__device__ __forceinline__ float bf16_low(uint32_t v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float bf16_high(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }
}  // namespace tessera::cuda
