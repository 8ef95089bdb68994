// CUDA C++ as host code: the names of CUDA and of kernels/device.cuh that kernels use, for g++.
// Each thread of a block is a fiber (block_runner.h); what this file only declares is done there.
// Nothing here changes what a kernel means.
#pragma once
#include <math.h>  // NOLINT: kernels say expf, not std::expf

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// The runner tells the shared memory of a block from other memory by its being local to the thread.
#define __shared__ static thread_local

struct int2 {
  int x, y;
};
struct uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

namespace tessera::simt {

// Constant for a thread, so the compiler may keep them.
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) uint3 block_shape();
__attribute__((const)) uint3 grid_shape();
__attribute__((const)) int lane();
void* dynamic_shared();

struct Place {  // in a kernel's source
  const char* file = nullptr;
  int line = 0;
};
void block_barrier(Place place);
void warp_barrier(uint32_t members, Place place);
uint64_t shuffle(uint32_t members, uint64_t bits, int source_lane, Place place);
enum class Vote : uint8_t { kBallot, kAny, kAll };
uint32_t vote(uint32_t members, bool predicate, Vote kind, Place place);
void copy_async16(void* shared, const void* global);
void copy_async_commit();
void copy_async_wait(int groups);
void load_matrix(uint32_t (&r)[4], const void* row, bool transposed, Place place);
void multiply_add_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                        Place place);
void memory_fence();
// What a device only approximates: rounded to f32 here.
float approximate(double exact);

// What a kernel is launched by.
struct KernelEntry {
  const char* name;
  int max_threads;
  int parameters;
  const int* parameter_bytes;
  void (*call)(void** parameters);
};
bool add_kernel(const KernelEntry& kernel);

template <auto kFunction>
struct Unpack;
template <class... P, void (*kFunction)(P...)>
struct Unpack<kFunction> {
  static constexpr int kCount = sizeof...(P);
  static constexpr int kBytes[] = {static_cast<int>(sizeof(P))..., 0};
  static void call(void** parameters) {
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      kFunction(*static_cast<P*>(parameters[kIndex])...);
    }
    (std::index_sequence_for<P...>{});
  }
};

template <class T>
T shuffle_value(uint32_t members, T value, int source_lane, Place place) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(members, bits, source_lane, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace tessera::simt

#define TESSERA_LARGE_KERNEL TESSERA_KERNEL
#define TESSERA_PAIRED_KERNEL TESSERA_KERNEL
#define TESSERA_KERNEL(threads, name, ...)                                               \
  extern "C" void name(__VA_ARGS__);                                                     \
  [[maybe_unused]] static const bool name##_is_registered = ::tessera::simt::add_kernel( \
      {#name, threads, ::tessera::simt::Unpack<&name>::kCount,                           \
       ::tessera::simt::Unpack<&name>::kBytes, &::tessera::simt::Unpack<&name>::call});  \
  extern "C" void name(__VA_ARGS__)
#define TESSERA_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::tessera::simt::dynamic_shared())

#define threadIdx (::tessera::simt::thread_index())
#define blockIdx (::tessera::simt::block_index())
#define blockDim (::tessera::simt::block_shape())
#define gridDim (::tessera::simt::grid_shape())
constexpr int warpSize = 32;
#define TESSERA_SIMT_PLACE \
  ::tessera::simt::Place { __builtin_FILE(), __builtin_LINE() }

#define __syncthreads() ::tessera::simt::block_barrier({__FILE__, __LINE__})
inline void __syncwarp(uint32_t members = 0xffffffffu,
                       ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  ::tessera::simt::warp_barrier(members, place);
}
inline void __threadfence() { ::tessera::simt::memory_fence(); }
inline void __threadfence_block() { ::tessera::simt::memory_fence(); }

// A lane outside the segment of `width` lanes gives the own value, as PTX's shfl says.
template <class T>
T __shfl_sync(uint32_t members, T value, int source, int width = 32,
              ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  const int lane = ::tessera::simt::lane();
  return ::tessera::simt::shuffle_value(members, value,
                                        (lane & ~(width - 1)) | (source & (width - 1)), place);
}
template <class T>
T __shfl_xor_sync(uint32_t members, T value, int mask, int width = 32,
                  ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  const int lane = ::tessera::simt::lane(), source = lane ^ mask;
  const bool inside = source <= (lane | (width - 1));
  return ::tessera::simt::shuffle_value(members, value, inside ? source : lane, place);
}
template <class T>
T __shfl_up_sync(uint32_t members, T value, unsigned delta, int width = 32,
                 ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  const int lane = ::tessera::simt::lane(), source = lane - static_cast<int>(delta);
  const bool inside = source >= (lane & ~(width - 1));
  return ::tessera::simt::shuffle_value(members, value, inside ? source : lane, place);
}
template <class T>
T __shfl_down_sync(uint32_t members, T value, unsigned delta, int width = 32,
                   ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  const int lane = ::tessera::simt::lane(), source = lane + static_cast<int>(delta);
  const bool inside = source <= (lane | (width - 1));
  return ::tessera::simt::shuffle_value(members, value, inside ? source : lane, place);
}
inline unsigned __ballot_sync(uint32_t members, bool predicate,
                              ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  return ::tessera::simt::vote(members, predicate, ::tessera::simt::Vote::kBallot, place);
}
inline int __any_sync(uint32_t members, bool predicate,
                      ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  return static_cast<int>(
      ::tessera::simt::vote(members, predicate, ::tessera::simt::Vote::kAny, place));
}
inline int __all_sync(uint32_t members, bool predicate,
                      ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  return static_cast<int>(
      ::tessera::simt::vote(members, predicate, ::tessera::simt::Vote::kAll, place));
}

// Of integers alone: sums of floats would depend on the order of threads.
int atomicAdd(int* p, int value);
unsigned atomicAdd(unsigned* p, unsigned value);
unsigned long long atomicAdd(unsigned long long* p, unsigned long long value);
int atomicMax(int* p, int value);
unsigned atomicMax(unsigned* p, unsigned value);
int atomicMin(int* p, int value);
unsigned atomicMin(unsigned* p, unsigned value);
int atomicOr(int* p, int value);
unsigned atomicOr(unsigned* p, unsigned value);

#include "simt_arithmetic.h"
