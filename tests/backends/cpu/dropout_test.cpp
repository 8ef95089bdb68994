#include "backends/cpu/kernels/dropout.h"

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

constexpr uint64_t kStream = stream_of("noise");
constexpr int32_t kThreshold = 19661;  // p = 0.3

// Row b of `keys`, laid out as `shape`; `begin` of its part.
Tensor run(const Tensor& x, const Shape& shape, const TensorPart& part, int64_t begin,
           const std::vector<int64_t>& keys, Isa isa, ThreadPool& pool) {
  Tensor y(x.dtype(), x.size(), 7);
  dropout({.dtype = x.dtype(),
           .x = x.data(),
           .y = y.data(),
           .row_keys = keys.data(),
           .stream = kStream,
           .threshold = kThreshold,
           .rows = shape[0],
           .lines = RandomLines(shape, part, begin)},
          isa, pool);
  return y;
}

std::vector<int64_t> some_keys(int64_t rows) {
  std::vector<int64_t> keys;
  for (int64_t b = 0; b < rows; ++b) keys.push_back(b * 1000003 + (int64_t{b} << 50));
  return keys;
}

TEST(Dropout, IsTheMaskOfTheGenerator) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (Shape shape : {Shape{1, 1}, {3, 7}, {2, 5, 130}, {1, 3, 1000}, {2, 2, 3, 129}, {40}}) {
      SCOPED_TRACE(to_string(shape));
      Tensor x = Tensor::random(dtype, num_elements(shape), 1);
      std::vector<int64_t> keys = some_keys(shape[0]);
      Tensor y = same_for_all_threads(
          [&](ThreadPool& pool) { return run(x, shape, {}, 0, keys, isa, pool); });
      RandomLines lines(shape, {}, 0);
      int64_t row = lines.lines() * lines.width();
      for (int64_t i = 0; i < x.size(); ++i) {
        int64_t element = i % row, line = element / lines.width();
        auto n = static_cast<uint64_t>(lines.line_begin(line) + element % lines.width());
        auto key = static_cast<uint64_t>(keys[static_cast<size_t>(i / row)]);
        bool kept = static_cast<int32_t>(random_bits16(key, kStream, n)) >= kThreshold;
        auto scale = static_cast<float>(65536.0 / (65536 - kThreshold));
        ASSERT_EQ(y[i], kept ? rounded(dtype, x[i] * scale) : 0) << i;
      }
    }
  });
}

// A tensor cut in parts along any dim, rows included: each has its elements of the whole.
TEST(Dropout, PartsTogetherAreTheWhole) {
  const Shape shape{2, 6, 4, 150};
  std::vector<int64_t> keys = some_keys(2), strides{3600, 600, 150, 1};
  for_isas_and_dtypes([&](Isa isa, DType dtype) {
    Tensor x(dtype, num_elements(shape), 1);
    Tensor whole = run(x, shape, {}, 0, keys, isa, pool_of(1));
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      SCOPED_TRACE(dim);
      Shape half = shape;
      half[dim] /= 2;
      for (int64_t begin : {int64_t{0}, half[dim]}) {
        TensorPart part;
        if (dim > 0) part = {static_cast<int64_t>(dim), shape[dim]};
        std::vector<int64_t> own(keys.begin() + (dim == 0 ? begin : 0), keys.end());
        Tensor ones(dtype, num_elements(half), 1);
        Tensor y = run(ones, half, part, part.whole() ? 0 : begin, own, isa, pool_of(2));
        int64_t i = 0;
        for (int64_t a = 0; a < half[0]; ++a)
          for (int64_t b = 0; b < half[1]; ++b)
            for (int64_t c = 0; c < half[2]; ++c)
              for (int64_t d = 0; d < half[3]; ++d, ++i) {
                int64_t at = a * strides[0] + b * strides[1] + c * strides[2] + d;
                ASSERT_EQ(y[i], whole[at + begin * strides[dim]]) << i;
              }
      }
    }
  });
}

TEST(Dropout, WorksInPlaceAndDropsWhatIsNotANumber) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    const Shape shape{1, 300};
    Tensor x = Tensor::random(dtype, 300, 1), mask(dtype, 300, 1);
    mask = run(mask, shape, {}, 0, {5}, isa, pool_of(1));
    for (int64_t i = 0; i < 300; ++i)
      if (mask[i] == 0) x.set(i, NAN);
    Tensor y = run(x, shape, {}, 0, {5}, isa, pool_of(1));
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(y[i] == 0, mask[i] == 0) << i;
    std::vector<int64_t> key{5};
    dropout({.dtype = dtype,
             .x = x.data(),
             .y = x.data(),
             .row_keys = key.data(),
             .stream = kStream,
             .threshold = kThreshold,
             .rows = 1,
             .lines = RandomLines(shape, {}, 0)},
            isa, pool_of(2));
    EXPECT_TRUE(x == y);
  });
}

}  // namespace
}  // namespace tessera::cpu
