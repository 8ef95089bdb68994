#include <limits>

#include "backends/cpu/kernels/cross_entropy.h"
#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Logits of some rows, NaN behind the first `classes` columns, with what a gradient needs.
struct Rows {
  Rows(int64_t n, int64_t c, int64_t s)
      : count(n),
        classes(c),
        stride(s),
        logits(Tensor::random(DType::kF32, n * s, 1, 4)),
        lse(Tensor::random(DType::kF32, n, 2)),
        dlse(Tensor::random(DType::kF32, n, 3)),
        dhit(Tensor::random(DType::kF32, n, 4)) {
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t j = c; j < s; ++j) logits.set(row * s + j, std::nan(""));
      auto at = static_cast<uint64_t>(row);
      // Every other one anywhere: also below 0, behind the columns, behind the row.
      int64_t any = static_cast<int64_t>(random_below(5, 0, at, static_cast<uint64_t>(3 * s))) - s;
      int64_t inside =
          c == 0 ? 0 : static_cast<int64_t>(random_below(6, 0, at, static_cast<uint64_t>(c)));
      targets.push_back(static_cast<int32_t>(row % 2 ? any : inside));
      // Probabilities at most 1.
      lse.set(row, std::abs(lse[row]) + 14);
    }
  }
  double x(int64_t row, int64_t j) const { return logits[row * stride + j]; }
  int64_t target(int64_t row) const { return targets[static_cast<size_t>(row)]; }
  bool hits(int64_t row) const { return target(row) >= 0 && target(row) < classes; }

  int64_t count, classes, stride;
  Tensor logits;
  std::vector<int32_t> targets;
  Tensor lse, dlse, dhit;
};

struct Forward {
  Tensor lse, hit;
  bool operator==(const Forward&) const = default;
};
Forward forward(const Rows& r, Isa isa, ThreadPool& pool) {
  Forward out{Tensor(DType::kF32, r.count, 7), Tensor(DType::kF32, r.count, 7)};
  log_sum_exp_rows({.logits = r.logits.f32(),
                    .targets = r.targets.data(),
                    .lse = out.lse.f32(),
                    .hit = out.hit.f32(),
                    .rows = r.count,
                    .classes = r.classes,
                    .stride = r.stride},
                   isa, pool);
  return out;
}

void gradient(const Rows& r, Tensor& dlogits, Isa isa, ThreadPool& pool) {
  log_sum_exp_gradient_rows({.logits = r.logits.f32(),
                             .targets = r.targets.data(),
                             .lse = r.lse.f32(),
                             .dlse = r.dlse.f32(),
                             .dhit = r.dhit.f32(),
                             .dlogits = dlogits.data(),
                             .dlogits_dtype = dlogits.dtype(),
                             .rows = r.count,
                             .classes = r.classes,
                             .stride = r.stride},
                            isa, pool);
}

template <class Body>
void for_sizes(const Body& body) {
  for (int64_t rows : {1, 38}) {
    for (int64_t classes : {1, 5, 16, 1023, 2049}) {
      for (int64_t padding : {0, 1, 19}) {
        SCOPED_TRACE(cat(rows, " x ", classes, " + ", padding));
        body(Rows(rows, classes, classes + padding));
      }
    }
  }
}

template <class Round>
Doubles log_sums(const Rows& r, Round round) {
  Doubles lse;
  for (int64_t row = 0; row < r.count; ++row) {
    double highest = -kInfinity, sum = 0;
    for (int64_t j = 0; j < r.classes; ++j) highest = std::max(highest, r.x(row, j));
    for (int64_t j = 0; j < r.classes; ++j) sum += round(std::exp(round(r.x(row, j) - highest)));
    lse.push_back(round(round(std::log(round(sum))) + highest));
  }
  return lse;
}

template <class Round>
Doubles gradients(const Rows& r, Round round) {
  Doubles dlogits;
  for (int64_t row = 0; row < r.count; ++row) {
    for (int64_t j = 0; j < r.stride; ++j) {
      double p = j < r.classes ? round(std::exp(round(r.x(row, j) - r.lse[row]))) : 0;
      double hit = j < r.classes && j == r.target(row) ? r.dhit[row] : 0;
      dlogits.push_back(round(round(r.dlse[row] * p) + hit));
    }
  }
  return dlogits;
}

double exactly(double x) { return x; }

TEST(LogSumExp, ForwardMatchesFormula) {
  for (Isa isa : isas_here()) {
    SCOPED_TRACE(name(isa));
    for_sizes([&](const Rows& r) {
      Forward out = same_for_all_threads([&](ThreadPool& pool) { return forward(r, isa, pool); });
      auto to_float = [](double v) { return rounded(DType::kF32, v); };
      expect_as_good(out.lse, log_sums(r, to_float), log_sums(r, exactly));
      for (int64_t row = 0; row < r.count; ++row)
        ASSERT_EQ(out.hit[row], r.hits(row) ? r.x(row, r.target(row)) : 0) << row;
    });
  }
}

TEST(LogSumExp, GradientMatchesFormulaAndIsZeroBehindTheClasses) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    for_sizes([&](const Rows& r) {
      Tensor dlogits = same_for_all_threads([&](ThreadPool& pool) {
        Tensor out(dtype, r.count * r.stride, 7);
        gradient(r, out, isa, pool);
        return out;
      });
      auto round = [&](double v) { return rounded(dtype, v); };
      expect_as_good(dlogits, gradients(r, round), gradients(r, exactly));
      for (int64_t row = 0; row < r.count; ++row) {
        for (int64_t j = r.classes; j < r.stride; ++j) ASSERT_EQ(dlogits[row * r.stride + j], 0);
      }
    });
  });
}

TEST(LogSumExp, GradientMayTakeTheLogitsPlace) {
  for (Isa isa : isas_here()) {
    for_sizes([&](const Rows& r) {
      Tensor apart(DType::kF32, r.count * r.stride);
      gradient(r, apart, isa, pool_of(1));
      Rows over = r;
      gradient(over, over.logits, isa, pool_of(2));
      EXPECT_TRUE(over.logits == apart);
    });
  }
}

TEST(LogSumExp, NoClassesGiveMinusInfinityAndNoGradient) {
  for_isas_and_dtypes([](Isa isa, DType dtype) {
    Rows r(5, 0, 21);
    Forward out = forward(r, isa, pool_of(2));
    r.lse = out.lse;
    Tensor dlogits(dtype, 5 * 21, 7);
    gradient(r, dlogits, isa, pool_of(2));
    for (int64_t row = 0; row < 5; ++row) {
      EXPECT_EQ(out.lse[row], -kInfinity);
      EXPECT_EQ(out.hit[row], 0);
    }
    EXPECT_TRUE(dlogits == Tensor(dtype, 5 * 21));
  });
}

TEST(LogSumExp, NonFiniteLogits) {
  for (Isa isa : isas_here()) {
    for (int64_t place : {0, 20, 1500}) {
      Rows r(1, 1501, 1510);
      r.logits.set(place, -kInfinity);
      EXPECT_TRUE(std::isfinite(forward(r, isa, pool_of(1)).lse[0]));
      for (double bad : {kInfinity, std::nan("")}) {
        r.logits.set(place, bad);
        EXPECT_TRUE(std::isnan(forward(r, isa, pool_of(1)).lse[0])) << bad << " at " << place;
      }
    }
    Rows r(1, 1030, 1030);
    for (int64_t j = 0; j < 1030; ++j) r.logits.set(j, -kInfinity);
    EXPECT_EQ(forward(r, isa, pool_of(1)).lse[0], -kInfinity);
  }
}

}  // namespace
}  // namespace tessera::cpu
