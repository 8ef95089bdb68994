#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "backends/cpu/kernels/matmul.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// Elements as values, and the bytes of a dtype that hold them.
float round_to(DType d, float x) { return d == DType::kBF16 ? static_cast<float>(BF16(x)) : x; }

class Buffer {
 public:
  // Filled with 0xff: NaN in either dtype.
  explicit Buffer(int64_t bytes)
      : bytes_(bytes), data_(std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))) {
    std::memset(data_, 0xff, static_cast<size_t>(bytes));
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  float get(DType d, int64_t i) const {
    return d == DType::kF32 ? static_cast<float*>(data_)[i]
                            : static_cast<float>(static_cast<BF16*>(data_)[i]);
  }
  void set(DType d, int64_t i, float x) const {
    if (d == DType::kF32) {
      static_cast<float*>(data_)[i] = x;
    } else {
      static_cast<BF16*>(data_)[i] = BF16(x);
    }
  }
  bool operator==(const Buffer& other) const {
    return bytes_ == other.bytes_ &&
           std::memcmp(data_, other.data_, static_cast<size_t>(bytes_)) == 0;
  }

 private:
  int64_t bytes_;
  void* data_;
};

struct DTypes {
  DType in, out;
};
constexpr DTypes kDTypes[] = {
    {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}};
constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

// `spare` is added to every leading dimension.
MatmulProblem problem(int64_t m, int64_t n, int64_t k, bool ta, bool tb, DTypes d, bool accumulate,
                      int64_t spare = 0) {
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_a = ta,
          .transpose_b = tb,
          .a = d.in,
          .b = d.in,
          .c = d.out,
          .lda = (ta ? m : k) + spare,
          .ldb = (tb ? k : n) + spare,
          .ldc = n + spare,
          .accumulate = accumulate};
}

std::string describe(const MatmulProblem& p) {
  return cat(p.m, "x", p.n, "x", p.k, p.transpose_a ? " T" : " N", p.transpose_b ? "T " : "N ",
             name(p.a), "->", name(p.c), p.accumulate ? " accumulate" : "", " ldc ", p.ldc);
}

// Values of A [m, k], B [k, n] and the old C [m, n], already rounded to their dtypes; the exact
// product, and the error of a plain f32 loop that rounds once.
struct Sample {
  int64_t m, n, k;
  DTypes dtypes;
  std::vector<float> a, b, old;
  std::vector<double> exact;

  Sample(int64_t rows, int64_t columns, int64_t depth, DTypes d)
      : m(rows),
        n(columns),
        k(depth),
        dtypes(d),
        a(random("a", m * k, d.in)),
        b(random("b", k * n, d.in)),
        old(random("c", m * n, d.out)) {
    exact.resize(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < n; ++j)
          exact[at(i, j)] +=
              double{a[static_cast<size_t>(i * k + p)]} * b[static_cast<size_t>(p * n + j)];
  }

  size_t at(int64_t i, int64_t j) const { return static_cast<size_t>(i * n + j); }
  double expected(int64_t i, int64_t j, bool accumulate) const {
    return exact[at(i, j)] + (accumulate ? double{old[at(i, j)]} : 0.0);
  }

  // Root of the mean square.
  double plain_error(bool accumulate) const {
    double squares = 0;
    std::vector<float> sums(static_cast<size_t>(n));
    for (int64_t i = 0; i < m; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < n; ++j)
          sums[static_cast<size_t>(j)] +=
              a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
      for (int64_t j = 0; j < n; ++j) {
        float sum = sums[static_cast<size_t>(j)] + (accumulate ? old[at(i, j)] : 0.0f);
        double error = round_to(dtypes.out, sum) - expected(i, j, accumulate);
        squares += error * error;
      }
    }
    return std::sqrt(squares / static_cast<double>(m * n));
  }
  double size(bool accumulate) const {
    double squares = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) squares += std::pow(expected(i, j, accumulate), 2);
    return std::sqrt(squares / static_cast<double>(m * n));
  }

 private:
  static std::vector<float> random(const char* stream, int64_t count, DType d) {
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      values[static_cast<size_t>(i)] = round_to(
          d, static_cast<float>(random_normal(11, stream_of(stream), static_cast<uint64_t>(i))));
    return values;
  }
};

// The operands in memory; the bias is the first row of the old C. What lies between rows is NaN and
// must neither be read nor, in C, written.
struct Operands {
  Buffer a, b, c, bias;

  Operands(const Sample& s, const MatmulProblem& p)
      : a((p.transpose_a ? p.k : p.m) * p.lda * size_of(p.a)),
        b((p.transpose_b ? p.n : p.k) * p.ldb * size_of(p.b)),
        c(p.m * p.ldc * size_of(p.c)),
        bias(p.n * size_of(p.c)) {
    for (int64_t j = 0; p.bias && j < p.n; ++j) bias.set(p.c, j, s.old[s.at(0, j)]);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t q = 0; q < p.k; ++q)
        a.set(p.a, p.transpose_a ? q * p.lda + i : i * p.lda + q,
              s.a[static_cast<size_t>(i * p.k + q)]);
    int64_t padded = p.padded_a ? padded_for_matmul(p.k) : p.k;
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t q = p.k; q < padded; ++q) a.set(p.a, i * p.lda + q, 0);
    for (int64_t q = 0; q < p.k; ++q)
      for (int64_t j = 0; j < p.n; ++j)
        b.set(p.b, p.transpose_b ? j * p.ldb + q : q * p.ldb + j,
              s.b[static_cast<size_t>(q * p.n + j)]);
    if (!p.accumulate) return;  // NaN: the old C must not be used
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) c.set(p.c, i * p.ldc + j, s.old[s.at(i, j)]);
  }

  void run(const Matmul& matmul, int threads) const {
    ThreadPool pool(threads);
    Buffer workspace(matmul.workspace_bytes(threads));
    matmul.run(pool, a.data(), b.data(), c.data(), workspace.data(),
               matmul.problem().bias ? bias.data() : nullptr);
  }
};

double error_of(const Sample& s, const MatmulProblem& p, const Buffer& c) {
  double squares = 0;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double error = c.get(p.c, i * p.ldc + j) - s.expected(i, j, p.accumulate || p.bias);
      squares += error * error;
    }
    for (int64_t j = p.n; j < p.ldc; ++j)
      EXPECT_TRUE(std::isnan(c.get(p.c, i * p.ldc + j))) << "wrote past row " << i;
  }
  return std::sqrt(squares / static_cast<double>(p.m * p.n));
}

// Calls f(matmul, isa) for every implementation and instruction set that takes the problem here.
template <class F>
void for_implementations(const MatmulProblem& p, F f) {
  for (const MatmulImplementation& implementation : matmul_implementations()) {
    for (Isa isa : kIsas) {
      if (isa > detect_isa()) continue;
      // The f32 kernel of AMX machines is that of AVX-512.
      if (implementation.name == "vector" && isa == Isa::kAmx) continue;
      std::unique_ptr<const Matmul> matmul = implementation.make(p, isa);
      if (!matmul) continue;
      SCOPED_TRACE(cat(matmul->description(), " on ", name(isa), ": ", describe(p)));
      f(*matmul, isa);
    }
  }
}

void check_accuracy(const Sample& s, const MatmulProblem& p) {
  bool added = p.accumulate || p.bias;
  double allowed = 1.5 * s.plain_error(added);
  // Few elements are no sample of an error: there, and where nothing was rounded, half a unit.
  double half_unit = p.c == DType::kBF16 ? 0x1p-9 : 0x1p-24;
  if (s.m * s.n < 300 || s.k < 4) allowed += 2 * half_unit * s.size(added);
  for_implementations(p, [&](const Matmul& matmul, Isa) {
    Operands operands(s, p);
    operands.run(matmul, 1);
    EXPECT_LE(error_of(s, p, operands.c), allowed);
  });
}

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
    // Whole panels: rows of A may be read where they lie, at any stride.
    Sample whole(288, 570, 608, dtypes);
    check_accuracy(whole, problem(288, 570, 608, false, true, dtypes, false));
    check_accuracy(whole, problem(288, 570, 608, false, false, dtypes, true, 5));
    // As may rows of any length behind which there are zeros.
    Sample padded(288, 570, 601, dtypes);
    MatmulProblem p = problem(288, 570, 601, false, false, dtypes, false, 7);
    p.padded_a = true;
    check_accuracy(padded, p);
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

  EXPECT_NE(make_matmul(p, Isa::kPortable), made[0]);
  MatmulProblem other = p;
  other.accumulate = true;
  EXPECT_NE(make_matmul(other, detect_isa()), made[0]);
}

TEST(MakeMatmul, TakesBf16ToMatrixTilesWhereThereAreSome) {
  if (detect_isa() != Isa::kAmx) GTEST_SKIP() << "no AMX here";
  MatmulProblem p = problem(256, 256, 256, false, true, kDTypes[2], false);
  EXPECT_TRUE(make_matmul(p, Isa::kAmx)->description().starts_with("packed amx"));
  EXPECT_TRUE(make_matmul(p, Isa::kAvx512)->description().starts_with("packed avx512"));
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
