#include "backends/cpu/kernels/cross_entropy.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

constexpr float kScale = 0.37f, kNoSquares = 0, kSquareScale = 0.03f;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Result {
  Tensor lse, loss, dlogits;
  bool operator==(const Result&) const = default;
};

Result run(const Tensor& logits, const std::vector<int32_t>& targets, DType gradient, Isa isa,
           ThreadPool& pool, const float* square_scale = &kNoSquares) {
  auto rows = static_cast<int64_t>(targets.size());
  Result r{Tensor(DType::kF32, rows, 7), Tensor(DType::kF32, rows, 7),
           Tensor(gradient, logits.size(), 7)};
  cross_entropy_rows({.dtype = logits.dtype(),
                      .logits = logits.data(),
                      .targets = targets.data(),
                      .lse = r.lse.f32(),
                      .loss = r.loss.f32(),
                      .rows = rows,
                      .classes = logits.size() / rows,
                      .dlogits = r.dlogits.data(),
                      .dlogits_dtype = gradient,
                      .scale = &kScale,
                      .square_scale = square_scale},
                     isa, pool);
  return r;
}

// Every third row ignored.
std::vector<int32_t> targets_of(int64_t rows, int64_t classes) {
  std::vector<int32_t> targets;
  for (int64_t n = 0; n < rows; ++n) {
    auto t = random_below(3, stream_of("targets"), static_cast<uint64_t>(n),
                          static_cast<uint64_t>(classes));
    targets.push_back(n % 3 == 2 ? kIgnoredTarget : static_cast<int32_t>(t));
  }
  return targets;
}

struct Expected {
  Doubles lse, loss, dlogits;
};
template <class Round>
Expected compute(const Tensor& logits, const std::vector<int32_t>& targets, Round round,
                 double square_scale = 0) {
  auto rows = static_cast<int64_t>(targets.size()), classes = logits.size() / rows;
  Expected e;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t target = targets[static_cast<size_t>(row)];
    double highest = -kInfinity, sum = 0;
    auto x = [&](int64_t j) { return logits[row * classes + j]; };
    for (int64_t j = 0; j < classes; ++j) highest = std::max(highest, x(j));
    for (int64_t j = 0; j < classes; ++j) sum += round(std::exp(round(x(j) - highest)));
    double lse = round(round(std::log(round(sum))) + highest);
    bool ignored = target == kIgnoredTarget;
    e.lse.push_back(ignored ? 0 : lse);
    e.loss.push_back(ignored ? 0 : round(lse - x(target)));
    for (int64_t j = 0; j < classes; ++j) {
      double p = round(std::exp(round(x(j) - lse)));
      double d = round(round(p - (j == target ? 1 : 0)) * kScale);
      if (square_scale != 0) d = round(d + round(p * round(2 * round(square_scale * lse))));
      e.dlogits.push_back(ignored ? 0 : d);
    }
  }
  return e;
}

TEST(CrossEntropy, MatchesFormula) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (int64_t rows : {1, 4, 37}) {
      for (int64_t classes : {2, 5, 16, 37, 1023, 2049, 3000}) {
        SCOPED_TRACE(cat(rows, " x ", classes));
        Tensor logits = Tensor::random(dtype, rows * classes, 1, 4);
        std::vector<int32_t> targets = targets_of(rows, classes);
        for (const float* squares : {&kNoSquares, &kSquareScale}) {
          Result r = same_for_all_threads(
              [&](ThreadPool& pool) { return run(logits, targets, dtype, isa, pool, squares); });
          auto exactly = [](double v) { return v; };
          auto rounding = [&](double v) { return rounded(dtype, v); };
          Expected exact = compute(logits, targets, exactly, *squares);
          Expected decomposed = compute(logits, targets, rounding, *squares);
          expect_as_good(r.lse, decomposed.lse, exact.lse);
          expect_as_good(r.loss, decomposed.loss, exact.loss);
          expect_as_good(r.dlogits, decomposed.dlogits, exact.dlogits);
        }
      }
    }
  });
}

TEST(CrossEntropy, GradientInPlaceInTheOtherDtypeOrNotAtAll) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    int64_t rows = 5, classes = 1029;
    Tensor logits = Tensor::random(dtype, rows * classes, 1, 4);
    std::vector<int32_t> targets = targets_of(rows, classes);
    Result apart = run(logits, targets, dtype, isa, pool_of(1));

    Tensor over = logits, lse(DType::kF32, rows), loss(DType::kF32, rows);
    CrossEntropyRows args{.dtype = dtype,
                          .logits = over.data(),
                          .targets = targets.data(),
                          .lse = lse.f32(),
                          .loss = loss.f32(),
                          .rows = rows,
                          .classes = classes,
                          .dlogits = over.data(),
                          .dlogits_dtype = dtype,
                          .scale = &kScale,
                          .square_scale = &kNoSquares};
    cross_entropy_rows(args, isa, pool_of(2));
    EXPECT_TRUE(over == apart.dlogits);
    EXPECT_TRUE(loss == apart.loss);

    DType other = dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
    Expected exact = compute(logits, targets, [](double v) { return v; });
    Tensor mixed = run(logits, targets, other, isa, pool_of(2)).dlogits;
    EXPECT_LE(relative_error(mixed, exact.dlogits), other == DType::kF32 ? 1e-6 : 0x1p-8);

    Tensor alone(DType::kF32, rows), loss_alone(DType::kF32, rows);
    args.logits = logits.data();
    args.lse = alone.f32();
    args.loss = loss_alone.f32();
    args.dlogits = nullptr;
    args.scale = nullptr;
    cross_entropy_rows(args, isa, pool_of(2));
    EXPECT_TRUE(alone == apart.lse);
    EXPECT_TRUE(loss_alone == apart.loss);
  });
}

// As the head of a model does it: bf16 over the first half of each f32 row, between which there may
// be other bytes.
TEST(CrossEntropy, GradientInHalfOfTheLogits) {
  for (Isa isa : isas_here()) {
    int64_t rows = 5, classes = 1029, stride = 1056;
    Tensor logits = Tensor::random(DType::kF32, rows * classes, 1, 4);
    std::vector<int32_t> targets = targets_of(rows, classes);
    Result apart = run(logits, targets, DType::kBF16, isa, pool_of(1));
    Tensor over(DType::kF32, rows * stride, kInfinity), lse(DType::kF32, rows),
        loss(DType::kF32, rows);
    for (int64_t i = 0; i < rows * classes; ++i)
      over.set(i / classes * stride + i % classes, logits[i]);
    cross_entropy_rows({.dtype = DType::kF32,
                        .logits = over.data(),
                        .targets = targets.data(),
                        .lse = lse.f32(),
                        .loss = loss.f32(),
                        .rows = rows,
                        .classes = classes,
                        .dlogits = over.data(),
                        .dlogits_dtype = DType::kBF16,
                        .scale = &kScale,
                        .square_scale = &kNoSquares,
                        .dlogits_stride = 2 * stride,
                        .logits_stride = stride},
                       isa, pool_of(2));
    auto bytes = static_cast<size_t>(classes) * 2;
    for (int64_t row = 0; row < rows; ++row) {
      const auto* halves = static_cast<const std::byte*>(apart.dlogits.data()) + row * 2 * classes;
      const auto* whole = static_cast<const std::byte*>(over.data()) + row * 4 * stride;
      EXPECT_EQ(std::memcmp(whole, halves, bytes), 0) << "row " << row;
    }
    EXPECT_TRUE(loss == apart.loss);
  }
}

// Padded classes are minus infinity; whole blocks of them may come first.
TEST(CrossEntropy, MinusInfinityHasProbabilityZero) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    int64_t classes = 2500, padded = 2100;
    Tensor logits(dtype, classes, -kInfinity);
    for (int64_t j = padded; j < classes; ++j) logits.set(j, 0);
    Result r = run(logits, {2200}, dtype, isa, pool_of(1));
    EXPECT_NEAR(r.loss[0], std::log(400), 1e-5);
    for (int64_t j = 0; j < padded; ++j) ASSERT_EQ(r.dlogits[j], 0);
    EXPECT_NEAR(r.dlogits[padded], kScale / 400, 1e-5);
    EXPECT_NEAR(r.dlogits[2200], -kScale * (1 - 1.0 / 400), 2e-3);
  });
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Tensor logits(dtype, 3);
    for (int64_t j = 0; j < 3; ++j) logits.set(j, j == 1 ? 1e30 : -1e30);
    Result r = run(logits, {1}, dtype, isa, pool_of(1));
    EXPECT_EQ(r.loss[0], 0);
    for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(r.dlogits[j], 0);
  });
}

// What is added to all logits changes nothing, as far below 0 as it may be: those of GPT-2 are near
// -100. Nor do blocks that are left out.
TEST(CrossEntropy, LogitsMayAllBeFarBelowZero) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (double far : {-89.0, -104.0, -1e30}) {
      for (int64_t left_out : {0, 512, 1024}) {
        Tensor logits(dtype, 1501, far);
        for (int64_t j = 0; j < left_out; ++j) logits.set(j, -kInfinity);
        const Result r = run(logits, {1100}, dtype, isa, pool_of(1));
        const double expected = std::log(static_cast<double>(1501 - left_out));
        EXPECT_NEAR(r.loss[0], expected, 1e-5);
        EXPECT_NEAR(r.lse[0], logits[1500] + expected, 1e-6 * std::abs(far) + 1e-5);
        EXPECT_NEAR(r.dlogits[1500], r.dlogits[1101], 0);
        EXPECT_LT(r.dlogits[1100], 0);
      }
    }
  });
}

TEST(CrossEntropy, NonFiniteLogitsShowInLossAndIgnoredRowsAreNotRead) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for (double bad : {kInfinity, std::nan("")}) {
      for (int64_t place : {0, 20, 1500}) {
        Tensor logits = Tensor::random(dtype, 1501, 1);
        logits.set(place, bad);
        EXPECT_FALSE(std::isfinite(run(logits, {3}, dtype, isa, pool_of(1)).loss[0]));
        Result ignored = run(logits, {kIgnoredTarget}, dtype, isa, pool_of(1));
        EXPECT_EQ(ignored.loss[0], 0);
        EXPECT_EQ(ignored.lse[0], 0);
        EXPECT_TRUE(ignored.dlogits == Tensor(dtype, 1501));
      }
    }
    Tensor all_nan(dtype, 40, std::nan(""));
    EXPECT_TRUE(std::isnan(run(all_nan, {3}, dtype, isa, pool_of(1)).loss[0]));
  });
}

TEST(CrossEntropy, RefusesTargetsOutsideTheClasses) {
  Tensor logits(DType::kF32, 8);
  for (int32_t bad : {-1, 8}) {
    EXPECT_THROW(run(logits, {bad}, DType::kF32, Isa::kPortable, pool_of(1)), InternalError);
  }
}

}  // namespace
}  // namespace tessera::cpu
