// Elements of tensors as kernels compute with them, eight at a time where addresses allow.
#pragma once
#include <cmath>
#include <cstdint>

#include "device.cuh"
#include "parameters.h"

namespace tessera::cuda {

// Stored in 16 bits, computed in f32.
struct Bf16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

template <class T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<Bf16> {
  using type = float;
};
template <>
struct ComputeType<Half> {
  using type = float;
};
// The type in which elements of T are computed.
template <class T>
using Compute = typename ComputeType<T>::type;

template <class T>
__device__ __forceinline__ T widen(T x) {
  return x;
}
__device__ __forceinline__ float widen(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float widen(Half x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16, m = x.bits & 0x7fffu;
  if (m < 0x400u) {  // subnormal: a multiple of 2^-24
    return __uint_as_float(__float_as_uint(static_cast<float>(m) * 5.9604644775390625e-8f) | sign);
  }
  if (m < 0x7c00u) return __uint_as_float(sign | ((m << 13) + 0x38000000u));
  return __uint_as_float(sign | 0x7f800000u | (m << 13) | (m > 0x7c00u ? 0x400000u : 0u));
}

// Rounds to nearest even.
template <class T>
struct Narrow {
  static __device__ __forceinline__ T of(T x) { return x; }
};
template <>
struct Narrow<Bf16> {
  static __device__ __forceinline__ Bf16 of(float x) {
    return {static_cast<uint16_t>(pack_bf16(x, 0.0f))};
  }
};
template <>
struct Narrow<Half> {
  static __device__ __forceinline__ Half of(float x) {
    const uint32_t u = __float_as_uint(x), sign = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
    uint32_t magnitude = 0x7c00u;
    if (m > 0x7f800000u) {
      magnitude = 0x7e00u | ((m >> 13) & 0x3ffu);
    } else if (m < 0x38800000u) {
      // The last bit of 0.5 + x is worth 2^-24, as that of a subnormal number is.
      magnitude = __float_as_uint(__uint_as_float(m) + 0.5f) - 0x3f000000u;
    } else if (m < 0x477ff000u) {
      magnitude = (m - 0x38000000u + 0xfffu + ((m >> 13) & 1u)) >> 13;
    }
    return {static_cast<uint16_t>(sign | magnitude)};
  }
};
template <class T>
__device__ __forceinline__ T narrow(Compute<T> x) {
  return Narrow<T>::of(x);
}

// Eight neighbours, moved 16 bytes at a time, or all at once where they are fewer bytes.
constexpr int kVector = 8;
template <class T>
struct alignas(sizeof(T) >= 2 ? 16 : 8) Vector {
  T x[kVector];
};
template <class T>
__device__ __forceinline__ bool aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % alignof(Vector<T>) == 0;
}
template <class T>
__device__ __forceinline__ Vector<T> load(const T* p) {
  return *reinterpret_cast<const Vector<T>*>(p);
}
template <class T>
__device__ __forceinline__ void store(T* p, const Vector<T>& v) {
  *reinterpret_cast<Vector<T>*>(p) = v;
}

// First of the eight elements of this thread in a launch that gives each thread eight.
__device__ __forceinline__ int64_t first_element() {
  return (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
}

// y[i] = f(x[i]) of stored elements. y may be x.
template <class In, class Out, class F>
__device__ __forceinline__ void map_elements(const In* x, Out* y, int64_t n, F f) {
  const int64_t begin = first_element();
  if (begin >= n) return;
  if (begin + kVector <= n && aligned(x) && aligned(y)) {
    const Vector<In> a = load(x + begin);
    Vector<Out> r;
#pragma unroll
    for (int k = 0; k < kVector; ++k) r.x[k] = f(a.x[k]);
    store(y + begin, r);
  } else {
    for (int64_t i = begin; i < n && i < begin + kVector; ++i) y[i] = f(x[i]);
  }
}

// y[i] = f(a[i], b[i]); y may be either.
template <class In, class Out, class F>
__device__ __forceinline__ void zip_elements(const In* a, const In* b, Out* y, int64_t n, F f) {
  const int64_t begin = first_element();
  if (begin >= n) return;
  if (begin + kVector <= n && aligned(a) && aligned(b) && aligned(y)) {
    const Vector<In> left = load(a + begin), right = load(b + begin);
    Vector<Out> r;
#pragma unroll
    for (int k = 0; k < kVector; ++k) r.x[k] = f(left.x[k], right.x[k]);
    store(y + begin, r);
  } else {
    for (int64_t i = begin; i < n && i < begin + kVector; ++i) y[i] = f(a[i], b[i]);
  }
}

// Element offset of index i in a walk.
__device__ __forceinline__ int64_t offset_of(const Walk& walk, int64_t i) {
  int64_t offset = 0;
  for (int d = walk.dims - 1; d > 0; --d) {
    const int64_t next = i / walk.sizes[d];
    offset += (i - next * walk.sizes[d]) * walk.steps[d];
    i = next;
  }
  return offset + i * (walk.dims > 0 ? walk.steps[0] : 0);
}

// The larger one; a NaN on either side comes out.
template <class C>
__device__ __forceinline__ C larger(C a, C b) {
  return a != a || b != b ? a + b : a < b ? b : a;
}
__device__ __forceinline__ int32_t larger(int32_t a, int32_t b) { return a < b ? b : a; }
__device__ __forceinline__ int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }

}  // namespace tessera::cuda
