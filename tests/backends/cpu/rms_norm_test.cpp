#include "backends/cpu/kernels/rms_norm.h"

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Forward {
  Tensor y, rstd;
  bool operator==(const Forward&) const = default;
};
struct Backward {
  Tensor dx, dw;
  bool operator==(const Backward&) const = default;
};

Forward run_forward(const Tensor& x, const Tensor& w, int64_t rows, Isa isa, ThreadPool& pool) {
  Forward out{Tensor(x.dtype(), x.size(), 7), Tensor(DType::kF32, rows, 7)};
  rms_norm_forward({.dtype = x.dtype(),
                    .x = x.data(),
                    .w = w.data(),
                    .y = out.y.data(),
                    .rstd = out.rstd.f32(),
                    .rows = rows,
                    .width = w.size(),
                    .epsilon = kEpsilon},
                   isa, pool);
  return out;
}

Backward run_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                      Isa isa, ThreadPool& pool, const Tensor* added = nullptr) {
  int64_t rows = rstd.size();
  Backward out{Tensor(x.dtype(), x.size(), 7), Tensor(DType::kF32, w.size(), 7)};
  Tensor workspace(DType::kF32, rms_norm_backward_workspace(rows, w.size()) / 4, NAN);
  rms_norm_backward({.dtype = x.dtype(),
                     .x = x.data(),
                     .w = w.data(),
                     .rstd = rstd.f32(),
                     .dy = dy.data(),
                     .added = added ? added->data() : nullptr,
                     .dx = out.dx.data(),
                     .dw = out.dw.f32(),
                     .workspace = workspace.f32(),
                     .rows = rows,
                     .width = w.size()},
                    isa, pool);
  return out;
}

// y, rstd, dx and dw of the formula. `round` is applied after every operation: the identity gives
// the exact values, rounding to the dtype the decomposition.
struct Expected {
  Doubles y, rstd, dx, dw;
  Doubles dw_magnitude;  // sums of |dy h|: the terms of dw can cancel
};
template <class Round>
Expected compute(const Tensor& x, const Tensor& w, const Tensor& dy, int64_t rows, Round round) {
  int64_t width = w.size();
  Expected e{Doubles(x.size()), Doubles(rows), Doubles(x.size()), Doubles(width), Doubles(width)};
  for (int64_t row = 0; row < rows; ++row) {
    auto in = [&](const Tensor& t, int64_t i) { return t[row * width + i]; };
    double squares = 0, dot = 0;
    for (int64_t i = 0; i < width; ++i) squares += round(in(x, i) * in(x, i));
    double mean = round(round(squares) / static_cast<double>(width));
    double rstd = round(1 / std::sqrt(round(mean + kEpsilon)));
    e.rstd[row] = rstd;
    for (int64_t i = 0; i < width; ++i) {
      double h = round(in(x, i) * rstd);
      e.y[row * width + i] = round(h * w[i]);
      dot += round(round(in(dy, i) * w[i]) * h);
      e.dw[i] += round(in(dy, i) * h);
      e.dw_magnitude[i] += std::abs(in(dy, i) * h);
    }
    double mean_dot = round(round(dot) / static_cast<double>(width));
    for (int64_t i = 0; i < width; ++i) {
      double h = round(in(x, i) * rstd), d = round(in(dy, i) * w[i]);
      e.dx[row * width + i] = round(rstd * round(d - round(h * mean_dot)));
    }
  }
  for (double& d : e.dw) d = round(d);
  return e;
}

TEST(RmsNorm, MatchesFormula) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t rows : {1, 5, 33, 70}) {
      for (int64_t width : {1, 2, 7, 16, 17, 64, 100, 257}) {
        SCOPED_TRACE(cat(rows, " x ", width));
        Tensor x = Tensor::random(dtype, rows * width, 1, 3), w = Tensor::random(dtype, width, 2);
        Tensor dy = Tensor::random(dtype, rows * width, 3, 0.1);
        Expected exact = compute(x, w, dy, rows, [](double v) { return v; });
        Expected decomposed = compute(x, w, dy, rows, [&](double v) { return rounded(dtype, v); });

        Forward forward = same_for_all_threads(
            [&](ThreadPool& pool) { return run_forward(x, w, rows, isa, pool); });
        expect_as_good(forward.y, decomposed.y, exact.y);
        EXPECT_LE(relative_error(forward.rstd, exact.rstd), 1e-7);
        Backward backward = same_for_all_threads(
            [&](ThreadPool& pool) { return run_backward(x, w, forward.rstd, dy, isa, pool); });
        for (int64_t i = 0; i < width; ++i) {
          ASSERT_NEAR(backward.dw[i], exact.dw[i], 5e-7 * exact.dw_magnitude[i]);
        }
        // dx of one element is the small difference of two equal terms: nothing to measure.
        if (width > 1) expect_as_good(backward.dx, decomposed.dx, exact.dx);
      }
    }
  });
}

TEST(RmsNorm, WorksInPlace) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    int64_t rows = 40, width = 37;
    Tensor x = Tensor::random(dtype, rows * width, 1), w = Tensor::random(dtype, width, 2);
    Tensor dy = Tensor::random(dtype, rows * width, 3);
    Forward apart = run_forward(x, w, rows, isa, pool_of(2));
    Backward expected = run_backward(x, w, apart.rstd, dy, isa, pool_of(2));

    Tensor y = x, rstd(DType::kF32, rows), dw(DType::kF32, width);
    Tensor workspace(DType::kF32, rms_norm_backward_workspace(rows, width) / 4);
    rms_norm_forward({.dtype = dtype,
                      .x = y.data(),
                      .w = w.data(),
                      .y = y.data(),
                      .rstd = rstd.f32(),
                      .rows = rows,
                      .width = width,
                      .epsilon = kEpsilon},
                     isa, pool_of(2));
    EXPECT_TRUE(y == apart.y);
    auto run_over = [&](Tensor& dx, const Tensor& from, const Tensor* added) {
      rms_norm_backward({.dtype = dtype,
                         .x = x.data(),
                         .w = w.data(),
                         .rstd = rstd.f32(),
                         .dy = from.data(),
                         .added = added ? added->data() : nullptr,
                         .dx = dx.data(),
                         .dw = dw.f32(),
                         .workspace = workspace.f32(),
                         .rows = rows,
                         .width = width},
                        isa, pool_of(2));
    };
    Tensor dx = dy;
    run_over(dx, dx, nullptr);
    EXPECT_TRUE(dx == expected.dx);
    EXPECT_TRUE(dw == expected.dw);

    const Tensor sum = Tensor::random(dtype, rows * width, 4);
    expected = run_backward(x, w, apart.rstd, dy, isa, pool_of(2), &sum);
    Tensor over_dy = dy, over_sum = sum;
    run_over(over_dy, over_dy, &sum);
    run_over(over_sum, dy, &over_sum);
    EXPECT_TRUE(over_dy == expected.dx);
    EXPECT_TRUE(over_sum == expected.dx);
    EXPECT_TRUE(dw == expected.dw);
  });
}

// A row of zeros is what a filled-up batch holds.
TEST(RmsNorm, ZeroRowStaysFinite) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Tensor x(dtype, 19), w = Tensor::random(dtype, 19, 2);
    Forward forward = run_forward(x, w, 1, isa, pool_of(1));
    for (int64_t i = 0; i < 19; ++i) EXPECT_EQ(forward.y[i], 0);
    Backward backward = run_backward(x, w, forward.rstd, x, isa, pool_of(1));
    for (int64_t i = 0; i < 19; ++i) EXPECT_EQ(backward.dx[i], 0);
  });
}

}  // namespace
}  // namespace tessera::cpu
