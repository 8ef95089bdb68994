#include "backends/cpu/kernels/gelu.h"

#include <numbers>

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

Tensor run(const Tensor& x, const Tensor* dy, bool exact, Isa isa, ThreadPool& pool) {
  Tensor y(x.dtype(), x.size(), 7);
  gelu({.dtype = x.dtype(),
        .exact = exact,
        .x = x.data(),
        .dy = dy ? dy->data() : nullptr,
        .y = y.data(),
        .n = x.size()},
       isa, pool);
  return y;
}

const double kSlope = std::sqrt(2 / std::numbers::pi);

// As the primitive has it in f32: formula 7.1.26 of Abramowitz and Stegun.
double erf_f32(double x) {
  float a = std::abs(static_cast<float>(x)), t = 1 / (1 + 0.3275911f * a), p = 1.061405429f;
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) p = p * t + c;
  return std::copysign(1 - p * t * std::exp(-a * a), x);
}

// gelu or, with dy, its gradient, from the formula in composite/gelu.h.
template <class Erf, class Round>
Doubles compute(const Tensor& x, const Tensor* dy, bool exact, Erf erf, Round round) {
  Doubles y;
  for (int64_t i = 0; i < x.size(); ++i) {
    double a = x[i], square = round(a * a), part = 0, slope = 0;
    if (exact) {
      part = round(erf(round(a / std::numbers::sqrt2)));
      slope = round(kSlope * round(std::exp(round(-0.5 * square))));
    } else {
      part = round(std::tanh(round(kSlope * round(a + round(0.044715 * round(a * square))))));
      slope = round(round(1 - round(part * part)) *
                    round(kSlope * round(1 + round(3 * 0.044715 * square))));
    }
    double sum = round(1 + part);
    y.push_back(dy ? round((*dy)[i] * round(0.5 * round(sum + round(a * slope))))
                   : round(round(0.5 * a) * sum));
  }
  return y;
}

TEST(Gelu, MatchesFormulaForwardAndBackward) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t n : {31, 515, 40001}) {
      Tensor x = Tensor::random(dtype, n, 1, 2), dy = Tensor::random(dtype, n, 2);
      for (bool exact : {false, true}) {
        for (const Tensor* gradient : {static_cast<const Tensor*>(nullptr), &std::as_const(dy)}) {
          SCOPED_TRACE(cat(n, exact ? " exact" : " tanh", gradient ? " gradient" : ""));
          Tensor y = same_for_all_threads(
              [&](ThreadPool& pool) { return run(x, gradient, exact, isa, pool); });
          Doubles decomposed =
              compute(x, gradient, exact, erf_f32, [&](double v) { return rounded(dtype, v); });
          auto same = [](double v) { return v; };
          auto erf = [](double v) { return std::erf(v); };
          expect_as_good(y, decomposed, compute(x, gradient, exact, erf, same));
        }
      }
    }
  });
}

TEST(Gelu, WorksInPlace) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (bool exact : {false, true}) {
      Tensor x = Tensor::random(dtype, 77, 1), dy = Tensor::random(dtype, 77, 2);
      Tensor y = run(x, nullptr, exact, isa, pool_of(1)), dx = run(x, &dy, exact, isa, pool_of(1));
      Tensor over_x = x, gradient_over_x = x, over_dy = dy;
      gelu({.dtype = dtype,
            .exact = exact,
            .x = over_x.data(),
            .dy = nullptr,
            .y = over_x.data(),
            .n = 77},
           isa, pool_of(2));
      gelu({.dtype = dtype,
            .exact = exact,
            .x = gradient_over_x.data(),
            .dy = dy.data(),
            .y = gradient_over_x.data(),
            .n = 77},
           isa, pool_of(2));
      gelu({.dtype = dtype,
            .exact = exact,
            .x = x.data(),
            .dy = over_dy.data(),
            .y = over_dy.data(),
            .n = 77},
           isa, pool_of(2));
      EXPECT_TRUE(over_x == y && gradient_over_x == dx && over_dy == dx);
    }
  });
}

TEST(Gelu, FarFromZeroItIsTheIdentityOrNothing) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Tensor x(dtype, 7), dy(dtype, 7, 1);
    double values[] = {-1e30, -200, -15, 15, 200, 1e30, NAN};
    for (int64_t i = 0; i < 7; ++i) x.set(i, values[i]);
    for (bool exact : {false, true}) {
      Tensor y = run(x, nullptr, exact, isa, pool_of(1)), dx = run(x, &dy, exact, isa, pool_of(1));
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(y[i], x[i] > 0 ? x[i] : 0, 1e-30) << x[i];
        EXPECT_NEAR(dx[i], x[i] > 0 ? 1 : 0, 1e-30) << x[i];
      }
      EXPECT_TRUE(std::isnan(y[6]) && std::isnan(dx[6]));
    }
  });
}

}  // namespace
}  // namespace tessera::cpu
