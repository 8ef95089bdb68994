#include "backends/cpu/kernels/layer_norm.h"

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Operands {
  Tensor x, w, b, dy;
  int64_t rows, width;
};
// Rows far from zero: their mean has to be taken away before anything is squared.
Operands operands(DType dtype, int64_t rows, int64_t width) {
  Operands in{.x = Tensor::random(dtype, rows * width, 1, 3),
              .w = Tensor::random(dtype, width, 2),
              .b = Tensor::random(dtype, width, 3),
              .dy = Tensor::random(dtype, rows * width, 4, 0.1),
              .rows = rows,
              .width = width};
  for (int64_t i = 0; i < in.x.size(); ++i) in.x.set(i, in.x[i] + 8);
  return in;
}

struct Forward {
  Tensor y, mean, rstd;
  bool operator==(const Forward&) const = default;
};
struct Backward {
  Tensor dx, dw, db;
  bool operator==(const Backward&) const = default;
};

Forward run_forward(const Operands& in, bool bias, Isa isa, ThreadPool& pool) {
  DType dtype = in.x.dtype();
  Forward out{Tensor(dtype, in.x.size(), 7), Tensor(DType::kF32, in.rows, 7),
              Tensor(DType::kF32, in.rows, 7)};
  layer_norm_forward({.dtype = dtype,
                      .x = in.x.data(),
                      .w = in.w.data(),
                      .b = bias ? in.b.data() : nullptr,
                      .y = out.y.data(),
                      .mean = out.mean.f32(),
                      .rstd = out.rstd.f32(),
                      .rows = in.rows,
                      .width = in.width,
                      .epsilon = kEpsilon},
                     isa, pool);
  return out;
}

Backward run_backward(const Operands& in, const Forward& forward, Isa isa, ThreadPool& pool,
                      const Tensor* added = nullptr) {
  DType dtype = in.x.dtype();
  Backward out{Tensor(dtype, in.x.size(), 7), Tensor(DType::kF32, in.width, 7),
               Tensor(DType::kF32, in.width, 7)};
  Tensor workspace(DType::kF32, layer_norm_backward_workspace(in.rows, in.width) / 4, NAN);
  layer_norm_backward({.dtype = dtype,
                       .x = in.x.data(),
                       .w = in.w.data(),
                       .mean = forward.mean.f32(),
                       .rstd = forward.rstd.f32(),
                       .dy = in.dy.data(),
                       .added = added ? added->data() : nullptr,
                       .dx = out.dx.data(),
                       .dw = out.dw.f32(),
                       .db = out.db.f32(),
                       .workspace = workspace.f32(),
                       .rows = in.rows,
                       .width = in.width},
                      isa, pool);
  return out;
}

// The formula. `round` is applied after every operation: the identity gives the exact values,
// rounding to the dtype the decomposition.
struct Expected {
  Doubles y, mean, rstd, dx, dw, db;
  Doubles dw_magnitude, db_magnitude;  // sums of the terms' sizes: they can cancel
};
template <class Round>
Expected compute(const Operands& in, bool bias, Round round) {
  auto n = static_cast<double>(in.width);
  Expected e{.y = Doubles(in.x.size()),
             .mean = Doubles(in.rows),
             .rstd = Doubles(in.rows),
             .dx = Doubles(in.x.size()),
             .dw = Doubles(in.width),
             .db = Doubles(in.width),
             .dw_magnitude = Doubles(in.width),
             .db_magnitude = Doubles(in.width)};
  for (int64_t row = 0; row < in.rows; ++row) {
    auto at = [&](const Tensor& t, int64_t i) { return t[row * in.width + i]; };
    double sum = 0, squares = 0, sum_g = 0, dot = 0;
    for (int64_t i = 0; i < in.width; ++i) sum += at(in.x, i);
    double mean = round(round(sum) / n);
    for (int64_t i = 0; i < in.width; ++i) {
      double c = round(at(in.x, i) - mean);
      squares += round(c * c);
    }
    double rstd = round(1 / std::sqrt(round(round(round(squares) / n) + kEpsilon)));
    e.mean[row] = mean;
    e.rstd[row] = rstd;
    for (int64_t i = 0; i < in.width; ++i) {
      double h = round(round(at(in.x, i) - mean) * rstd), g = round(at(in.dy, i) * in.w[i]);
      double y = round(h * in.w[i]);
      e.y[row * in.width + i] = bias ? round(y + in.b[i]) : y;
      sum_g += g;
      dot += round(g * h);
      e.dw[i] += round(at(in.dy, i) * h);
      e.db[i] += at(in.dy, i);
      // h is a difference, of x and a mean that the backward pass has in f32.
      e.dw_magnitude[i] += std::abs(at(in.dy, i)) * (std::abs(at(in.x, i)) + std::abs(mean)) * rstd;
      e.db_magnitude[i] += std::abs(at(in.dy, i));
    }
    double mean_g = round(round(sum_g) / n), mean_gh = round(round(dot) / n);
    for (int64_t i = 0; i < in.width; ++i) {
      double h = round(round(at(in.x, i) - mean) * rstd), g = round(at(in.dy, i) * in.w[i]);
      e.dx[row * in.width + i] = round(rstd * round(round(g - mean_g) - round(h * mean_gh)));
    }
  }
  return e;
}

// Of a single row the rounding of rstd is all that there is to measure: rows from 4 on.
TEST(LayerNorm, MatchesFormula) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t rows : {4, 5, 33, 70}) {
      for (int64_t width : {2, 7, 16, 17, 64, 100, 257}) {
        SCOPED_TRACE(cat(rows, " x ", width));
        Operands in = operands(dtype, rows, width);
        bool bias = rows != 5;
        Expected exact = compute(in, bias, [](double v) { return v; });
        Expected decomposed = compute(in, bias, [&](double v) { return rounded(dtype, v); });
        Forward forward = same_for_all_threads(
            [&](ThreadPool& pool) { return run_forward(in, bias, isa, pool); });
        expect_as_good(forward.y, decomposed.y, exact.y);
        EXPECT_LE(relative_error(forward.mean, exact.mean), 3e-7);
        EXPECT_LE(relative_error(forward.rstd, exact.rstd), 1e-6);
        Backward backward = same_for_all_threads(
            [&](ThreadPool& pool) { return run_backward(in, forward, isa, pool); });
        for (int64_t i = 0; i < width; ++i) {
          ASSERT_NEAR(backward.dw[i], exact.dw[i], 5e-7 * exact.dw_magnitude[i]);
          ASSERT_NEAR(backward.db[i], exact.db[i], 5e-7 * exact.db_magnitude[i]);
        }
        // dx of two elements is the small difference of equal terms: nothing to measure.
        if (width > 2) expect_as_good(backward.dx, decomposed.dx, exact.dx);
      }
    }
  });
}

TEST(LayerNorm, WorksInPlace) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Operands in = operands(dtype, 40, 37);
    Forward apart = run_forward(in, true, isa, pool_of(2));
    Backward expected = run_backward(in, apart, isa, pool_of(2));
    Tensor y = in.x, mean(DType::kF32, 40), rstd(DType::kF32, 40);
    Tensor dw(DType::kF32, 37), db(DType::kF32, 37);
    Tensor workspace(DType::kF32, layer_norm_backward_workspace(40, 37) / 4);
    layer_norm_forward({.dtype = dtype,
                        .x = y.data(),
                        .w = in.w.data(),
                        .b = in.b.data(),
                        .y = y.data(),
                        .mean = mean.f32(),
                        .rstd = rstd.f32(),
                        .rows = 40,
                        .width = 37,
                        .epsilon = kEpsilon},
                       isa, pool_of(2));
    EXPECT_TRUE(y == apart.y);
    auto run_over = [&](Tensor& dx, const Tensor& from, const Tensor* added) {
      layer_norm_backward({.dtype = dtype,
                           .x = in.x.data(),
                           .w = in.w.data(),
                           .mean = mean.f32(),
                           .rstd = rstd.f32(),
                           .dy = from.data(),
                           .added = added ? added->data() : nullptr,
                           .dx = dx.data(),
                           .dw = dw.f32(),
                           .db = db.f32(),
                           .workspace = workspace.f32(),
                           .rows = 40,
                           .width = 37},
                          isa, pool_of(2));
    };
    Tensor dx = in.dy;
    run_over(dx, dx, nullptr);
    EXPECT_TRUE(dx == expected.dx && dw == expected.dw && db == expected.db);

    const Tensor sum = Tensor::random(dtype, 40 * 37, 4);
    expected = run_backward(in, apart, isa, pool_of(2), &sum);
    Tensor over_dy = in.dy, over_sum = sum;
    run_over(over_dy, over_dy, &sum);
    run_over(over_sum, in.dy, &over_sum);
    EXPECT_TRUE(over_dy == expected.dx && over_sum == expected.dx);
    EXPECT_TRUE(dw == expected.dw && db == expected.db);
  });
}

// A row of equal numbers, zeros for instance: what a filled-up batch holds.
TEST(LayerNorm, RowWithoutVarianceIsTheBias) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Operands in = operands(dtype, 1, 19);  // and a single row works
    for (int64_t i = 0; i < 19; ++i) in.x.set(i, 3);
    Forward forward = run_forward(in, true, isa, pool_of(1));
    for (int64_t i = 0; i < 19; ++i) EXPECT_EQ(forward.y[i], in.b[i]);
    Backward backward = run_backward(in, forward, isa, pool_of(1));
    for (int64_t i = 0; i < 19; ++i) EXPECT_TRUE(std::isfinite(backward.dx[i]));
  });
}

}  // namespace
}  // namespace tessera::cpu
