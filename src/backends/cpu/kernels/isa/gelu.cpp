#include "backends/cpu/kernels/gelu.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr float kSlope = 0.797884560802865356f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

// (1 + tanh(u)) / 2 = 1 / (1 + e^-2u): nothing cancels.
struct ByTanh {
  static Vec value(Vec x) {
    Vec u = kSlope * (x + kCubic * (x * x * x));
    return x / (1.0f + exp(-2.0f * u));
  }
  // s + x s', s' = 2 u' s (1 - s); s and 1 - s by e^(-2|u|), which cannot overflow. Beyond 10 the
  // slope is 0 or 1 in f32, and x^3 might overflow. NaN stays NaN.
  static Vec slope(Vec x) {
    x = min(splat(10.0f), max(splat(-10.0f), x));
    Vec square = x * x, u = kSlope * (x + kCubic * (x * square));
    Vec e = exp(-2.0f * max(u, -u)), r = 1.0f / (1.0f + e);
    Vec s = u < 0.0f ? e * r : r;
    Vec du = kSlope * (1.0f + 3.0f * kCubic * square);
    return s + 2.0f * x * du * (e * r * r);
  }
};

struct ByErf {
  // Phi(x) = (1 + erf(x / sqrt(2))) / 2, and density = e^(-x^2 / 2), a factor of it.
  static Vec distribution(Vec x, Vec& density) {
    density = exp(-0.5f * (x * x));
    Vec size = max(x, -x);
    Vec t = 1.0f / (1.0f + (0.3275911f * 0.707106781186547524f) * size);
    Vec p = splat(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    Vec tail = 0.5f * (p * t * density);
    return x < 0.0f ? tail : 1.0f - tail;
  }
  static Vec value(Vec x) {
    Vec density;
    return x * distribution(x, density);
  }
  static Vec slope(Vec x) {
    Vec density, phi = distribution(x, density);
    return phi + x * density * 0.398942280401432678f;  // 1 / sqrt(2 pi)
  }
};

template <class Form, class T>
void run(const Gelu& args, int64_t begin, int64_t end) {
  const T *x = (const T*)args.x + begin, *dy = (const T*)args.dy;
  T* y = (T*)args.y + begin;
  if (dy == nullptr) {
    for_vectors(end - begin,
                [&](auto lanes, int64_t i) { lanes.store(y + i, Form::value(lanes.load(x + i))); });
    return;
  }
  dy += begin;
  for_vectors(end - begin, [&](auto lanes, int64_t i) {
    lanes.store(y + i, lanes.load(dy + i) * Form::slope(lanes.load(x + i)));
  });
}

template <class Form>
void run_as(const Gelu& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return run<Form, float>(args, begin, end);
  run<Form, BF16>(args, begin, end);
}

}  // namespace

void gelu_range(const Gelu& args, int64_t begin, int64_t end) {
  if (args.exact) return run_as<ByErf>(args, begin, end);
  run_as<ByTanh>(args, begin, end);
}

}  // namespace tessera::cpu::TESSERA_ISA
