#include "backends/cpu/kernels/reduce.h"

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kSizes[] = {0, 1, 17, 1023, 1024, 1025, 5000, 200003};

template <class Kernel>
double run(const Kernel& kernel, const Tensor& x, Isa isa, ThreadPool& pool) {
  std::vector<double> workspace(static_cast<size_t>(reduce_workspace(x.size()) / 8), NAN);
  return kernel(x.f32(), x.size(), workspace.data(), isa, pool);
}

TEST(Reduce, SumsMatchF64) {
  for (Isa isa : isas_here()) {
    for (int64_t n : kSizes) {
      SCOPED_TRACE(cat(name(isa), " ", n));
      Tensor x = Tensor::random(DType::kF32, n, 1);
      double plain = 0, squares = 0, magnitude = 0;
      for (int64_t i = 0; i < n; ++i) {
        plain += x[i];
        magnitude += std::abs(x[i]);
        squares += x[i] * x[i];
      }
      EXPECT_NEAR(same_for_all_threads([&](ThreadPool& p) { return run(sum, x, isa, p); }), plain,
                  1e-7 * magnitude);
      EXPECT_NEAR(
          same_for_all_threads([&](ThreadPool& p) { return run(sum_of_squares, x, isa, p); }),
          squares, 5e-7 * squares);
    }
  }
}

// Blocks count from the start of the buffer: the sum of a whole is the sum of parts cut at blocks.
TEST(Reduce, SumOfSquaresIsASumOverFixedBlocks) {
  for (Isa isa : isas_here()) {
    Tensor x = Tensor::random(DType::kF32, 2 * kReduceBlock + 5, 1);
    double parts = 0;
    for (int64_t begin = 0; begin < x.size(); begin += kReduceBlock) {
      double workspace = 0;
      parts += sum_of_squares(x.f32() + begin, std::min(kReduceBlock, x.size() - begin), &workspace,
                              isa, pool_of(1));
    }
    EXPECT_EQ(run(sum_of_squares, x, isa, pool_of(2)), parts);
  }
}

TEST(Reduce, NonFiniteValuesShow) {
  for (Isa isa : isas_here()) {
    Tensor x = Tensor::random(DType::kF32, 3000, 1);
    x.set(2999, NAN);
    EXPECT_TRUE(std::isnan(run(sum_of_squares, x, isa, pool_of(2))));
    x.set(2999, INFINITY);
    EXPECT_TRUE(std::isinf(run(sum_of_squares, x, isa, pool_of(2))));
  }
}

TEST(Reduce, ColumnSumsMatchF64) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (auto size : {std::pair{0, 5}, {1, 1}, {3, 17}, {64, 33}, {65, 1030}, {300, 7}}) {
      int64_t rows = size.first, width = size.second;
      SCOPED_TRACE(cat(rows, " x ", width));
      Tensor x = Tensor::random(dtype, rows * width, 1);
      Tensor y = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(DType::kF32, width, 7);
        Tensor workspace(DType::kF32, column_sum_workspace(rows, width) / 4, NAN);
        column_sum({.dtype = dtype,
                    .x = x.data(),
                    .y = out.f32(),
                    .workspace = workspace.f32(),
                    .rows = rows,
                    .width = width},
                   isa, pool);
        return out;
      });
      for (int64_t j = 0; j < width; ++j) {
        double exact = 0, magnitude = 0;
        for (int64_t i = 0; i < rows; ++i) {
          exact += x[i * width + j];
          magnitude += std::abs(x[i * width + j]);
        }
        ASSERT_NEAR(y[j], exact, 5e-7 * magnitude) << j;
      }
    }
  });
}

TEST(Reduce, CountsTargets) {
  std::vector<int32_t> targets{5, -100, 0, -100, 7};
  EXPECT_EQ(count_unequal(targets.data(), 5, -100), 3);
  EXPECT_EQ(count_unequal(targets.data(), 0, -100), 0);
}

}  // namespace
}  // namespace tessera::cpu
