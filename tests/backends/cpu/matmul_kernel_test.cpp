#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/matmul_packed.h"
#include "backends/cpu/kernels/matmul_rows.h"
#include "backends/cpu/kernels/matmul_stationary.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "tests/backends/cpu/matmul_samples.h"

namespace tessera::cpu {
namespace {

TEST(Matmul, BiasIsAddedBeforeRounding) {
  for (DTypes dtypes : {kDTypes[0], kDTypes[2]}) {
    for (const auto& [m, n, k] :
         {std::tuple{1, 1, 1}, {33, 127, 3}, {64, 64, 64}, {130, 1100, 300}, {17, 40, 0}}) {
      Sample sample(m, n, k, dtypes);
      for (int64_t i = 1; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) sample.old[sample.at(i, j)] = sample.old[sample.at(0, j)];
      MatmulProblem p = problem(m, n, k, false, true, dtypes, false, 5);
      p.bias = true;
      check_accuracy(sample, p);
    }
  }
}

TEST(Matmul, IsAsAccurateAsAPlainLoop) {
  const int64_t shapes[][3] = {{1, 1, 1},    {1, 64, 17},  {3, 1, 300},    {17, 3, 65},
                               {33, 127, 3}, {64, 64, 64}, {65, 33, 127},  {127, 200, 33},
                               {200, 65, 1}, {1, 300, 64}, {300, 17, 200}, {130, 150, 300}};
  int64_t spare = 0;
  for (const auto& [m, n, k] : shapes) {
    for (DTypes dtypes : kDTypes) {
      Sample sample(m, n, k, dtypes);
      for (int flags = 0; flags < 8; ++flags) {
        bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
        check_accuracy(sample, problem(m, n, k, ta, tb, dtypes, accumulate, spare));
        spare = spare == 0 ? 5 : spare == 5 ? 32 : 0;
      }
    }
  }
}

// Several tiles of C, several depth blocks, a ragged end everywhere.
TEST(Matmul, GoesOnAcrossTilesAndDepthBlocks) {
  for (DTypes dtypes : kDTypes) {
    Sample sample(290, 570, 601, dtypes);
    check_accuracy(sample, problem(290, 570, 601, false, true, dtypes, false, 3));
    check_accuracy(sample, problem(290, 570, 601, true, false, dtypes, true));
    Sample whole(288, 570, 608, dtypes);
    check_accuracy(whole, problem(288, 570, 608, false, true, dtypes, false));
    check_accuracy(whole, problem(288, 570, 608, false, false, dtypes, true, 5));
  }
}

// Results that are written past the caches, or not for want of alignment, with ragged ends.
TEST(Matmul, WritesLargeResults) {
  const int64_t shapes[][4] = {{1056, 1024, 32, 0}, {1050, 1056, 33, 0}, {1056, 1030, 32, 2}};
  for (const auto& [m, n, k, spare] : shapes) {
    for (DTypes dtypes : kDTypes) {
      Sample sample(m, n, k, dtypes);
      check_accuracy(sample, problem(m, n, k, false, true, dtypes, false, spare));
      check_accuracy(sample, problem(m, n, k, true, false, dtypes, true, spare));
    }
  }
}

// Operands that are packed chunk by chunk because the whole would be too large.
TEST(Matmul, GoesOnAcrossChunks) {
  Sample deep(5, 300, 40000, {DType::kF32, DType::kF32});
  check_accuracy(deep, problem(5, 300, 40000, false, false, deep.dtypes, false));
  Sample tall(300, 7, 40000, {DType::kBF16, DType::kF32});
  check_accuracy(tall, problem(300, 7, 40000, true, true, tall.dtypes, true));
  // Sums wait in the workspace where C cannot hold them.
  Sample rounded(260, 300, 9000, {DType::kBF16, DType::kBF16});
  check_accuracy(rounded, problem(260, 300, 9000, false, false, rounded.dtypes, true));
}

// Each row as if it were the only one, whatever lies beside it: the others of a sample differ.
TEST(Matmul, OfAFewRowsHasTheBitsOfEachRowAlone) {
  for (const auto& [n, k] : {std::pair{1, 1}, {37, 129}, {130, 64}, {6, 1000}, {4, 15}}) {
    for (DTypes dtypes : kDTypes) {
      for (int64_t m : {1, 2, 3, 4, 5, 7, 8, 13, 16}) {
        Sample sample(m, n, k, dtypes);
        MatmulProblem few = problem(m, n, k, false, true, dtypes, false, 3), one = few;
        one.m = 1;
        check_accuracy(sample, few);
        for (const bool bias : {false, dtypes.in == dtypes.out}) {
          few.bias = one.bias = bias;
          for (Isa isa : kIsas) {
            if (isa > detect_isa()) continue;
            auto all = make_rows_matmul(few, isa), alone = make_rows_matmul(one, isa);
            ASSERT_TRUE(all && alone);
            Operands operands(sample, few);
            operands.run(*all, 2);
            for (int64_t i = 0; i < m; ++i) {
              Operands row(sample, few);
              for (int64_t p = 0; p < k; ++p)
                row.a.set(few.a, p, operands.a.get(few.a, i * few.lda + p));
              row.run(*alone, 1);
              for (int64_t j = 0; j < n; ++j)
                EXPECT_EQ(row.c.get(few.c, j), operands.c.get(few.c, i * few.ldc + j))
                    << name(isa) << ", " << m << " rows, [" << i << ", " << j << "]";
            }
          }
        }
      }
    }
  }
  EXPECT_FALSE(make_rows_matmul(problem(17, 9, 9, false, true, kDTypes[0], false), kIsas[0]));
}

TEST(Matmul, HasTheSameBitsForAnyNumberOfThreads) {
  const int64_t shapes[][3] = {{300, 700, 130}, {129, 65, 513}, {513, 257, 64}};
  for (const auto& [m, n, k] : shapes) {
    for (DTypes dtypes : kDTypes) {
      Sample sample(m, n, k, dtypes);
      for (auto [ta, tb] : {std::pair{false, true}, {false, false}, {true, false}}) {
        MatmulProblem p = problem(m, n, k, ta, tb, dtypes, ta && dtypes.out == DType::kF32);
        for_implementations(p, [&](const Matmul& matmul, Isa) {
          Operands one(sample, p);
          one.run(matmul, 1);
          for (int threads : {2, 3, 5}) {
            Operands many(sample, p);
            many.run(matmul, threads);
            EXPECT_TRUE(many.c == one.c) << threads << " threads";
          }
        });
      }
    }
  }
}

TEST(Matmul, EmptyDepthGivesZeroOrTheOldC) {
  for (DTypes dtypes : kDTypes) {
    for (bool accumulate : {false, true}) {
      Sample sample(19, 40, 0, dtypes);
      MatmulProblem p = problem(19, 40, 0, false, true, dtypes, accumulate, 1);
      for_implementations(p, [&](const Matmul& matmul, Isa) {
        Operands operands(sample, p);
        operands.run(matmul, 2);
        EXPECT_EQ(error_of(sample, p, operands.c), 0);
      });
    }
  }
}

TEST(Matmul, EmptyResultIsLeftAlone) {
  for (auto [m, n] : {std::pair<int64_t, int64_t>{0, 8}, {8, 0}}) {
    Sample sample(m, n, 8, kDTypes[0]);
    MatmulProblem p = problem(m, n, 8, false, true, kDTypes[0], false, 1);
    for_implementations(p, [&](const Matmul& matmul, Isa) {
      Operands operands(sample, p);
      operands.run(matmul, 2);
    });
  }
}

TEST(Matmul, CarriesInfinityAndNan) {
  for (DTypes dtypes : kDTypes) {
    Sample sample(40, 40, 40, dtypes);
    MatmulProblem p = problem(40, 40, 40, false, true, dtypes, false);
    for_implementations(p, [&](const Matmul& matmul, Isa) {
      Operands operands(sample, p);
      operands.a.set(p.a, 3 * p.lda + 5, INFINITY);
      operands.b.set(p.b, 7 * p.ldb + 9, NAN);
      operands.run(matmul, 1);
      EXPECT_TRUE(std::isinf(operands.c.get(p.c, 3 * p.ldc + 2)));
      EXPECT_TRUE(std::isnan(operands.c.get(p.c, 20 * p.ldc + 7)));
      EXPECT_TRUE(std::isfinite(operands.c.get(p.c, 20 * p.ldc + 8)));
    });
  }
}

// In f32: infinite results where they belong, and errors that are small against the sizes of the
// terms that were summed; the same bits for one thread and three.
void check_range(const Sample& sample, const MatmulProblem& p) {
  Sample sizes = sample;
  for (float& x : sizes.a) x = std::abs(x);
  for (float& x : sizes.b) x = std::abs(x);
  for (float& x : sizes.old) x = std::abs(x);
  sizes.multiply();
  const bool adds = p.accumulate || p.bias;
  for_implementations(p, [&](const Matmul& matmul, Isa) {
    Operands operands(sample, p), others(sample, p);
    operands.run(matmul, 1);
    others.run(matmul, 3);
    EXPECT_TRUE(operands.c == others.c);
    int64_t wrong = 0;
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        const double exact = sample.expected(i, j, adds), c = operands.c.get(p.c, i * p.ldc + j);
        const double bound = 4 * 0x1p-24 * sizes.expected(i, j, adds);
        wrong += std::isinf(exact) ? c != exact : !(std::abs(c - exact) <= bound);
      }
    }
    EXPECT_EQ(wrong, 0) << "elements of C";
  });
}

TEST(Matmul, KeepsThePrecisionOfF32OverItsRange) {
  Sample sample(33, 40, 70, kDTypes[0]);
  auto scale = [](std::vector<float>& values, const char* stream) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double exponent = 100 * random_uniform(11, stream_of(stream), i) - 50;
      values[i] = std::ldexp(values[i], static_cast<int>(exponent));
    }
  };
  scale(sample.a, "exponents of a");
  scale(sample.b, "exponents of b");
  sample.multiply();
  check_range(sample, problem(33, 40, 70, false, true, kDTypes[0], false));
}

// Infinity, and numbers beyond bf16's largest, in some of the parts that an operand is packed in:
// pieces of the depth, chunks of columns, chunks of rows.
TEST(Matmul, TakesInfiniteAndHugeNumbersAnywhere) {
  const int64_t shapes[][3] = {{40, 50, 1100}, {33, 4700, 520}, {4700, 33, 520}};
  for (const auto& [m, n, k] : shapes) {
    Sample sample(m, n, k, kDTypes[0]);
    for (size_t i = static_cast<size_t>(n); i < sample.old.size(); ++i)  // rows of equal biases
      sample.old[i] = sample.old[i - static_cast<size_t>(n)];
    sample.a[static_cast<size_t>(3 * k + 2)] = -INFINITY;
    sample.b[static_cast<size_t>((k - 1) * n + n - 1)] = 3.4e38f;
    for (int64_t i = 0; i < m; ++i) sample.a[static_cast<size_t>(i * k + k - 1)] *= 0.01f;
    sample.multiply();
    MatmulProblem p = problem(m, n, k, false, true, kDTypes[0], true, 7);
    check_range(sample, p);
    p.accumulate = false, p.bias = true;
    check_range(sample, p);
    check_range(sample, problem(m, n, k, true, false, kDTypes[0], false));
  }
}

TEST(Matmul, OneProductRunsOnSeveralThreadsAtOnce) {
  for (DTypes dtypes : kDTypes) {
    Sample sample(150, 150, 150, dtypes);
    MatmulProblem p = problem(150, 150, 150, false, true, dtypes, false);
    for_implementations(p, [&](const Matmul& matmul, Isa) {
      Operands first(sample, p), second(sample, p), third(sample, p);
      std::thread other([&] { first.run(matmul, 1); });
      second.run(matmul, 1);
      other.join();
      third.run(matmul, 1);
      EXPECT_TRUE(first.c == third.c);
      EXPECT_TRUE(second.c == third.c);
    });
  }
}

TEST(Matmul, WritesTheSameThroughTheCachesAndPastThem) {
  for (DTypes dtypes : kDTypes) {
    const int64_t m = 1050, n = 1024, k = 70;  // 2 MiB of C
    Sample sample(m, n, k, dtypes);
    for (bool accumulate : {false, true}) {
      MatmulProblem p = problem(m, n, k, false, true, dtypes, accumulate);
      for_implementations(p, [&](const Matmul& matmul, Isa) {
        Operands through(sample, p), past(sample, p);
        through.run(matmul, 2);
        past.run(matmul, 2, kPastCaches);
        EXPECT_TRUE(through.c == past.c) << matmul.description() << " " << describe(p);
      });
    }
  }
}

// Too large for its packed columns, and for the sums that are kept from one piece of the depth to
// the next: the same bits as of its last rows alone.
TEST(Matmul, OfMatrixTilesIsCutWhereItIsLarge) {
  if (detect_isa() != Isa::kAmx) GTEST_SKIP() << "no AMX here";
  const int64_t m = 17000, n = 520, k = 2100, last = 40;
  std::vector<uint16_t> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
  for (auto* operand : {&a, &b}) {
    uint32_t state = 7;
    for (uint16_t& x : *operand) {
      state = state * 1664525 + 1013904223;
      x = static_cast<uint16_t>(0x3c00 + (state >> 23) + (state >> 8 & 1) * 0x8000);
    }
  }
  std::vector<uint16_t> all(static_cast<size_t>(m * n)), rows(static_cast<size_t>(last * n));
  auto multiply = [&](int64_t begin, std::vector<uint16_t>& c, int threads) {
    MatmulProblem p = problem(m - begin, n, k, true, false, kDTypes[2], false);
    p.lda = m;
    const auto matmul = make_matmul(p, Isa::kAmx);
    ThreadPool pool(threads);
    Buffer workspace(matmul->workspace_bytes(threads));
    matmul->run(pool, a.data() + begin, b.data(), c.data(), workspace.data());
  };
  multiply(0, all, 2);
  multiply(m - last, rows, 1);
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.end() - last * n));
}

TEST(MakeMatmul, PreparesAProblemOnce) {
  MatmulProblem p = problem(31, 32, 33, false, true, kDTypes[0], false);
  std::vector<std::shared_ptr<const Matmul>> made(4);
  {
    std::vector<std::jthread> threads;
    for (auto& to : made) threads.emplace_back([&to, p] { to = make_matmul(p, detect_isa()); });
  }
  for (const auto& matmul : made) EXPECT_EQ(matmul, made[0]);
  EXPECT_EQ(made[0]->problem(), p);
  EXPECT_EQ(made[0]->flops(), 2 * 31 * 32 * 33);

  if (detect_isa() != Isa::kPortable) {
    EXPECT_NE(make_matmul(p, Isa::kPortable), made[0]);
  }
  MatmulProblem other = p;
  other.accumulate = true;
  EXPECT_NE(make_matmul(other, detect_isa()), made[0]);
}

TEST(MakeMatmul, TakesBf16ToMatrixTilesWhereThereAreSome) {
  if (detect_isa() != Isa::kAmx) GTEST_SKIP() << "no AMX here";
  MatmulProblem p = problem(256, 256, 256, false, true, kDTypes[2], false);
  EXPECT_TRUE(make_matmul(p, Isa::kAmx)->description().starts_with("stationary amx"));
  EXPECT_TRUE(make_matmul(p, Isa::kAvx512)->description().starts_with("packed avx512"));
}

TEST(MakeMatmul, TakesBf16ToDotProductsWhereThereAreSome) {
  MatmulProblem p = problem(256, 256, 256, false, true, kDTypes[2], false);
  int sets = 0;
  for (Isa isa : kIsas) {
    if (isa != Isa::kAvx512Bf16 && isa != Isa::kNeonBf16) continue;
    EXPECT_TRUE(make_matmul(p, isa)->description().starts_with(cat("packed ", name(isa), ",")));
    ++sets;
  }
  EXPECT_EQ(sets, 1);
}

TEST(MakeMatmul, TakesF32ToMatrixTilesInThreeParts) {
  if (detect_isa() != Isa::kAmx) GTEST_SKIP() << "no AMX here";
  MatmulProblem p = problem(256, 256, 256, false, true, kDTypes[0], false);
  EXPECT_TRUE(in_parts(*make_matmul(p, Isa::kAmx)));
  EXPECT_FALSE(in_parts(*make_matmul(p, Isa::kAvx512)));
}

// A plan for another machine asks for instruction sets that this one lacks, and the one for this
// machine must not depend on which library happens to be here.
TEST(MakeMatmul, AsksForTheSameWorkspaceOnEveryMachine) {
  for (Isa isa : kIsas) {
    for (DTypes dtypes : kDTypes) {
      for (bool accumulate : {false, true}) {
        MatmulProblem p = problem(700, 1100, 333, false, true, dtypes, accumulate);
        std::unique_ptr<const Matmul> own;
        for (const MatmulImplementation& implementation : matmul_implementations()) {
          if (!own && implementation.name != "onednn") own = implementation.make(p, isa);
        }
        for (int threads : {1, 7}) {
          EXPECT_EQ(make_matmul(p, isa)->workspace_bytes(threads), own->workspace_bytes(threads))
              << name(isa) << " " << name(p.a);
        }
      }
    }
  }
}

TEST(MakeMatmul, RefusesWhatIsNoProduct) {
  const MatmulProblem good = problem(4, 5, 6, true, false, kDTypes[2], false);
  ASSERT_NO_THROW(make_matmul(good, Isa::kPortable));
  auto refuses = [&](auto change) {
    MatmulProblem p = good;
    change(p);
    EXPECT_THROW(make_matmul(p, Isa::kPortable), InternalError) << describe(p);
  };
  refuses([](MatmulProblem& p) { p.k = -1; });
  refuses([](MatmulProblem& p) { p.lda = 3; });
  refuses([](MatmulProblem& p) { p.ldb = 4; });
  refuses([](MatmulProblem& p) { p.ldc = 4; });
  refuses([](MatmulProblem& p) { p.b = DType::kF32; });
  refuses([](MatmulProblem& p) { p.a = p.b = DType::kF32; });
  refuses([](MatmulProblem& p) { p.a = p.b = p.c = DType::kF64; });
  refuses([](MatmulProblem& p) { p.c = DType::kF16; });
}

}  // namespace
}  // namespace tessera::cpu
