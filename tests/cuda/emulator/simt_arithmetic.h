// Arithmetic of CUDA C++ and of kernels/device.cuh as host code; included by simt.h. Functions that
// CUDA rounds correctly are exact here too; what a device approximates (exp, log, rsqrt ...) is the
// correctly rounded or the C library's value, so bits may differ from a device there.
#pragma once

inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }
inline long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float a) {
  return ::tessera::simt::approximate(1.0 / std::sqrt(static_cast<double>(a)));
}
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline int __ffs(int v) { return v ? std::countr_zero(static_cast<unsigned>(v)) + 1 : 0; }
template <class T>
T __ldg(const T* p) {
  return *p;
}

namespace tessera::cuda {

// As ex2.approx.ftz.f32 and lg2.approx.ftz.f32 do it: subnormal numbers are zeroes of their sign.
inline float flush_to_zero(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v; }
inline float exp2_approximate(float v) {
  return flush_to_zero(
      ::tessera::simt::approximate(std::exp2(static_cast<double>(flush_to_zero(v)))));
}
inline float log2_approximate(float v) {
  return flush_to_zero(
      ::tessera::simt::approximate(std::log2(static_cast<double>(flush_to_zero(v)))));
}
// Functions of the mathematical library that kernels call by these names: the host's.
#define TESSERA_APPROXIMATED(name) \
  inline float name(float v) { return ::tessera::simt::approximate(::name(v)); }
TESSERA_APPROXIMATED(expf)
TESSERA_APPROXIMATED(logf)
TESSERA_APPROXIMATED(tanhf)
TESSERA_APPROXIMATED(erff)
#undef TESSERA_APPROXIMATED
inline uint32_t round_to_bf16(float v) {
  const uint32_t bits = __float_as_uint(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline uint32_t pack_bf16(float low, float high) {
  return round_to_bf16(low) | round_to_bf16(high) << 16;
}
inline uint64_t multiply_wide(uint32_t a, uint32_t b) { return uint64_t{a} * b; }
inline void copy_async16(void* shared, const void* global) {
  ::tessera::simt::copy_async16(shared, global);
}
inline void copy_async_commit() { ::tessera::simt::copy_async_commit(); }
template <int kGroups>
void copy_async_wait() {
  ::tessera::simt::copy_async_wait(kGroups);
}
inline void load_matrix_x4(uint32_t (&r)[4], const void* row,
                           ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  ::tessera::simt::load_matrix(r, row, false, place);
}
inline void load_matrix_x4_transposed(uint32_t (&r)[4], const void* row,
                                      ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  ::tessera::simt::load_matrix(r, row, true, place);
}
inline void mma_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                      ::tessera::simt::Place place = TESSERA_SIMT_PLACE) {
  ::tessera::simt::multiply_add_16816(d, a, b0, b1, place);
}

}  // namespace tessera::cuda
