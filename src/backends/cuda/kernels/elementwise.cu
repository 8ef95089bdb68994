// Elementwise primitives: 256 threads a block, eight elements a thread.
#include "elements.cuh"

namespace tessera::cuda {
namespace {

// Formula 7.1.26 of Abramowitz and Stegun in f32; in f64 the exact function.
__device__ __forceinline__ float erf_of(float x) {
  const float a = fabsf(x), t = 1 / (1 + 0.3275911f * a);
  float p = 1.061405429f;
  p = p * t + -1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t + -0.284496736f;
  p = p * t + 0.254829592f;
  const float y = 1 - p * t * expf(-a * a);
  return x < 0 ? -y : y;
}
__device__ __forceinline__ double erf_of(double x) { return erf(x); }

template <class C>
__device__ __forceinline__ bool finite(C x) {
  return x - x == 0;
}
template <class C>
__device__ __forceinline__ C smaller(C a, C b) {
  return a != a || b != b ? a + b : b < a ? b : a;
}

// Toward zero, without traps: x / 0 is -1 and the lowest integer over -1 is itself.
template <class C, class U>
__device__ __forceinline__ C quotient(C a, C b) {
  if (b == 0) return C{-1};
  return b == -1 ? static_cast<C>(U{0} - static_cast<U>(a)) : a / b;
}

template <class T>
__device__ __forceinline__ bool holds(int32_t comparison, T x, T y) {
  const auto a = widen(x), b = widen(y);
  switch (comparison) {
    case 0: return a == b;
    case 1: return a != b;
    case 2: return a < b;
    case 3: return a <= b;
    case 4: return a > b;
    default: return a >= b;
  }
}

template <class T>
struct Lowest;
template <>
struct Lowest<int32_t> {
  static constexpr int32_t value = INT32_MIN, highest = INT32_MAX;
};
template <>
struct Lowest<int64_t> {
  static constexpr int64_t value = INT64_MIN, highest = INT64_MAX;
};

// The same element in another type; see convert.
template <class To, class From>
struct Converted {
  static __device__ __forceinline__ To of(From x) {
    return narrow<To>(static_cast<Compute<To>>(widen(x)));
  }
};
template <class From>
struct Converted<uint8_t, From> {
  static __device__ __forceinline__ uint8_t of(From x) { return widen(x) != 0; }
};
template <class Integer, class From>
__device__ __forceinline__ Integer integer_of(From v) {
  const auto x = widen(v);
  using C = decltype(widen(v));
  constexpr C kLowest = static_cast<C>(Lowest<Integer>::value);
  if (x != x) return 0;
  if (x < kLowest) return Lowest<Integer>::value;
  if (x >= -kLowest) return Lowest<Integer>::highest;
  return static_cast<Integer>(x);
}
#define TESSERA_INTEGER_OF(Integer, Float)                                               \
  template <>                                                                            \
  struct Converted<Integer, Float> {                                                     \
    static __device__ __forceinline__ Integer of(Float x) { return integer_of<Integer>(x); } \
  };
TESSERA_INTEGER_OF(int32_t, float)
TESSERA_INTEGER_OF(int32_t, double)
TESSERA_INTEGER_OF(int32_t, Bf16)
TESSERA_INTEGER_OF(int32_t, Half)
TESSERA_INTEGER_OF(int64_t, float)
TESSERA_INTEGER_OF(int64_t, double)
TESSERA_INTEGER_OF(int64_t, Bf16)
TESSERA_INTEGER_OF(int64_t, Half)

template <class T>
__device__ __forceinline__ void select_elements(const uint8_t* predicate, const T* a, const T* b,
                                                T* y, int64_t n) {
  const int64_t begin = first_element();
  for (int64_t i = begin; i < n && i < begin + kVector; ++i) y[i] = predicate[i] ? a[i] : b[i];
}

}  // namespace

#define TESSERA_UNARY_OF(KERNEL, name, suffix, T, expression)                      \
  KERNEL(256, name##_##suffix, const T* x, T* y, int64_t n) {                      \
    map_elements<T, T>(x, y, n, [](T v) {                                          \
      const auto a = widen(v);                                                     \
      return narrow<T>(expression);                                                \
    });                                                                            \
  }
#define TESSERA_UNARY(name, expression)                            \
  TESSERA_UNARY_OF(TESSERA_KERNEL, name, f32, float, expression)   \
  TESSERA_UNARY_OF(TESSERA_KERNEL, name, bf16, Bf16, expression)   \
  TESSERA_UNARY_OF(TESSERA_LARGE_KERNEL, name, f64, double, expression)
TESSERA_UNARY(neg, -a)
TESSERA_UNARY(exp, std::exp(a))
TESSERA_UNARY(log, std::log(a))
TESSERA_UNARY(sqrt, std::sqrt(a))
TESSERA_UNARY(rsqrt, 1 / std::sqrt(a))
TESSERA_UNARY(tanh, std::tanh(a))
TESSERA_UNARY(logistic, 1 / (1 + std::exp(-a)))
TESSERA_UNARY(erf, erf_of(a))
TESSERA_UNARY(sin, std::sin(a))
TESSERA_UNARY(cos, std::cos(a))
TESSERA_UNARY(abs, std::fabs(a))

#define TESSERA_IS_FINITE(suffix, T)                                              \
  TESSERA_KERNEL(256, is_finite_##suffix, const T* x, uint8_t* y, int64_t n) {    \
    map_elements<T, uint8_t>(                                                     \
        x, y, n, [](T v) { return static_cast<uint8_t>(finite(widen(v))); });     \
  }
TESSERA_IS_FINITE(f32, float)
TESSERA_IS_FINITE(bf16, Bf16)
TESSERA_IS_FINITE(f64, double)
TESSERA_KERNEL(256, not_bool, const uint8_t* x, uint8_t* y, int64_t n) {
  map_elements<uint8_t, uint8_t>(x, y, n, [](uint8_t v) { return static_cast<uint8_t>(v == 0); });
}

#define TESSERA_BINARY_OF(name, suffix, T, expression)                               \
  TESSERA_KERNEL(256, name##_##suffix, const T* x, const T* z, T* y, int64_t n) {    \
    zip_elements<T, T>(x, z, y, n, [](T v, T w) {                                    \
      const auto a = widen(v), b = widen(w);                                         \
      return narrow<T>(expression);                                                  \
    });                                                                              \
  }
#define TESSERA_FLOAT_BINARY(name, expression)        \
  TESSERA_BINARY_OF(name, f32, float, expression)     \
  TESSERA_BINARY_OF(name, bf16, Bf16, expression)     \
  TESSERA_BINARY_OF(name, f64, double, expression)
// Integer sums and products wrap around.
#define TESSERA_INTEGER_BINARY(name, expression)                                     \
  TESSERA_BINARY_OF(name, i32, int32_t, ([](int32_t s, int32_t t) {                  \
                      using C = int32_t;                                             \
                      using U = uint32_t;                                            \
                      return static_cast<C>(expression);                             \
                    }(a, b)))                                                        \
  TESSERA_BINARY_OF(name, i64, int64_t, ([](int64_t s, int64_t t) {                  \
                      using C = int64_t;                                             \
                      using U = uint64_t;                                            \
                      return static_cast<C>(expression);                             \
                    }(a, b)))
TESSERA_FLOAT_BINARY(add, a + b)
TESSERA_FLOAT_BINARY(sub, a - b)
TESSERA_FLOAT_BINARY(mul, a* b)
TESSERA_FLOAT_BINARY(div, a / b)
TESSERA_FLOAT_BINARY(max, larger(a, b))
TESSERA_FLOAT_BINARY(min, smaller(a, b))
TESSERA_FLOAT_BINARY(pow, std::pow(a, b))
TESSERA_INTEGER_BINARY(add, static_cast<U>(s) + static_cast<U>(t))
TESSERA_INTEGER_BINARY(sub, static_cast<U>(s) - static_cast<U>(t))
TESSERA_INTEGER_BINARY(mul, static_cast<U>(s) * static_cast<U>(t))
TESSERA_INTEGER_BINARY(div, (quotient<C, U>(s, t)))
TESSERA_INTEGER_BINARY(max, s < t ? t : s)
TESSERA_INTEGER_BINARY(min, t < s ? t : s)
TESSERA_BINARY_OF(and, bool, uint8_t, static_cast<uint8_t>(a != 0 && b != 0))
TESSERA_BINARY_OF(or, bool, uint8_t, static_cast<uint8_t>(a != 0 || b != 0))

// comparison: 0 eq, 1 ne, 2 lt, 3 le, 4 gt, 5 ge.
#define TESSERA_COMPARE(suffix, T)                                                            \
  TESSERA_KERNEL(256, compare_##suffix, const T* a, const T* b, uint8_t* y, int64_t n,        \
                 int32_t comparison) {                                                        \
    zip_elements<T, uint8_t>(a, b, y, n, [comparison](T v, T w) {                             \
      return static_cast<uint8_t>(holds(comparison, v, w));                                   \
    });                                                                                       \
  }
TESSERA_COMPARE(f32, float)
TESSERA_COMPARE(bf16, Bf16)
TESSERA_COMPARE(f64, double)
TESSERA_COMPARE(i32, int32_t)
TESSERA_COMPARE(i64, int64_t)
TESSERA_COMPARE(bool, uint8_t)

#define TESSERA_SELECT(bytes, T)                                                               \
  TESSERA_KERNEL(256, select_##bytes, const uint8_t* predicate, const T* a, const T* b, T* y,  \
                 int64_t n) {                                                                  \
    select_elements<T>(predicate, a, b, y, n);                                                 \
  }
TESSERA_SELECT(1, uint8_t)
TESSERA_SELECT(2, uint16_t)
TESSERA_SELECT(4, uint32_t)
TESSERA_SELECT(8, uint64_t)

#define TESSERA_CONVERT_TO(from, From, to, To)                                              \
  TESSERA_KERNEL(256, convert_##from##_##to, const From* x, To* y, int64_t n) {             \
    map_elements<From, To>(x, y, n, [](From v) { return Converted<To, From>::of(v); });     \
  }
#define TESSERA_CONVERT(from, From)                \
  TESSERA_CONVERT_TO(from, From, f64, double)      \
  TESSERA_CONVERT_TO(from, From, f32, float)       \
  TESSERA_CONVERT_TO(from, From, bf16, Bf16)       \
  TESSERA_CONVERT_TO(from, From, f16, Half)        \
  TESSERA_CONVERT_TO(from, From, i64, int64_t)     \
  TESSERA_CONVERT_TO(from, From, i32, int32_t)     \
  TESSERA_CONVERT_TO(from, From, bool, uint8_t)
TESSERA_CONVERT(f64, double)
TESSERA_CONVERT(f32, float)
TESSERA_CONVERT(bf16, Bf16)
TESSERA_CONVERT(f16, Half)
TESSERA_CONVERT(i64, int64_t)
TESSERA_CONVERT(i32, int32_t)
TESSERA_CONVERT(bool, uint8_t)

}  // namespace tessera::cuda
