#include "backends/cpu/kernels/swiglu.h"

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

struct Backward {
  Tensor dgate, dup;
  bool operator==(const Backward&) const = default;
};

Tensor run_forward(const Tensor& gate, const Tensor& up, int64_t rows, Isa isa, ThreadPool& pool) {
  int64_t width = gate.size() / rows;
  Tensor y(gate.dtype(), gate.size(), 7);
  swiglu_forward({.dtype = gate.dtype(),
                  .gate = gate.data(),
                  .up = up.data(),
                  .y = y.data(),
                  .rows = rows,
                  .width = width,
                  .gate_stride = width,
                  .up_stride = width,
                  .y_stride = width},
                 isa, pool);
  return y;
}

Backward run_backward(const Tensor& gate, const Tensor& up, const Tensor& dy, int64_t rows, Isa isa,
                      ThreadPool& pool) {
  int64_t width = gate.size() / rows;
  Backward out{Tensor(gate.dtype(), gate.size(), 7), Tensor(gate.dtype(), gate.size(), 7)};
  swiglu_backward({.dtype = gate.dtype(),
                   .gate = gate.data(),
                   .up = up.data(),
                   .dy = dy.data(),
                   .dgate = out.dgate.data(),
                   .dup = out.dup.data(),
                   .rows = rows,
                   .width = width,
                   .gate_stride = width,
                   .up_stride = width,
                   .dy_stride = width,
                   .dgate_stride = width,
                   .dup_stride = width},
                  isa, pool);
  return out;
}

struct Expected {
  Doubles y, dgate, dup;
};
template <class Round>
Expected compute(const Tensor& gate, const Tensor& up, const Tensor& dy, Round round) {
  Expected e;
  for (int64_t i = 0; i < gate.size(); ++i) {
    double g = gate[i], u = up[i], d = dy[i];
    double s = round(1 / round(1 + round(std::exp(-g))));
    double silu = round(g * s);
    e.y.push_back(round(silu * u));
    e.dup.push_back(round(d * silu));
    double slope = round(s * round(1 + round(g * round(1 - s))));
    e.dgate.push_back(round(round(d * u) * slope));
  }
  return e;
}

TEST(Swiglu, MatchesFormula) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t rows : {1, 3, 65}) {
      for (int64_t width : {1, 5, 16, 31, 128, 515}) {
        SCOPED_TRACE(cat(rows, " x ", width));
        Tensor gate = Tensor::random(dtype, rows * width, 1, 3);
        Tensor up = Tensor::random(dtype, rows * width, 2),
               dy = Tensor::random(dtype, rows * width, 3);
        Expected exact = compute(gate, up, dy, [](double v) { return v; });
        Expected decomposed = compute(gate, up, dy, [&](double v) { return rounded(dtype, v); });
        Tensor y = same_for_all_threads(
            [&](ThreadPool& pool) { return run_forward(gate, up, rows, isa, pool); });
        expect_as_good(y, decomposed.y, exact.y);
        Backward backward = same_for_all_threads(
            [&](ThreadPool& pool) { return run_backward(gate, up, dy, rows, isa, pool); });
        expect_as_good(backward.dgate, decomposed.dgate, exact.dgate);
        expect_as_good(backward.dup, decomposed.dup, exact.dup);
      }
    }
  });
}

// gate and up as halves of one [rows, 2 width] buffer, their gradients written over them.
TEST(Swiglu, WorksOnHalvesOfOneBufferAndInPlace) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    int64_t rows = 9, width = 21;
    Tensor both = Tensor::random(dtype, rows * 2 * width, 4),
           dy = Tensor::random(dtype, rows * width, 5);
    Tensor gate(dtype, rows * width), up(dtype, rows * width);
    for (int64_t i = 0; i < gate.size(); ++i) {
      gate.set(i, both[i / width * 2 * width + i % width]);
      up.set(i, both[i / width * 2 * width + width + i % width]);
    }
    Tensor y(dtype, rows * width);
    swiglu_forward({.dtype = dtype,
                    .gate = both.data(),
                    .up = both.at(width),
                    .y = y.data(),
                    .rows = rows,
                    .width = width,
                    .gate_stride = 2 * width,
                    .up_stride = 2 * width,
                    .y_stride = width},
                   isa, pool_of(2));
    EXPECT_TRUE(y == run_forward(gate, up, rows, isa, pool_of(1)));

    Backward apart = run_backward(gate, up, dy, rows, isa, pool_of(1));
    swiglu_backward({.dtype = dtype,
                     .gate = both.data(),
                     .up = both.at(width),
                     .dy = dy.data(),
                     .dgate = both.data(),
                     .dup = both.at(width),
                     .rows = rows,
                     .width = width,
                     .gate_stride = 2 * width,
                     .up_stride = 2 * width,
                     .dy_stride = width,
                     .dgate_stride = 2 * width,
                     .dup_stride = 2 * width},
                    isa, pool_of(2));
    for (int64_t i = 0; i < gate.size(); ++i) {
      ASSERT_EQ(both[i / width * 2 * width + i % width], apart.dgate[i]);
      ASSERT_EQ(both[i / width * 2 * width + width + i % width], apart.dup[i]);
    }
  });
}

TEST(Swiglu, LargeGatesStayFinite) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Tensor gate(dtype, 6), up(dtype, 6, 1), dy(dtype, 6, 1);
    double values[] = {-1e30, -200, -90, 90, 200, 1e30};
    for (int64_t i = 0; i < 6; ++i) gate.set(i, values[i]);
    Tensor y = run_forward(gate, up, 1, isa, pool_of(1));
    Backward backward = run_backward(gate, up, dy, 1, isa, pool_of(1));
    for (int64_t i = 0; i < 6; ++i) {
      double g = gate[i];
      EXPECT_NEAR(y[i], g > 0 ? g : 0, 1e-30);
      EXPECT_NEAR(backward.dgate[i], g > 0 ? 1 : 0, 1e-30);
      EXPECT_NEAR(backward.dup[i], g > 0 ? g : 0, 1e-30);
    }
  });
}

}  // namespace
}  // namespace tessera::cpu
