#pragma once
// Random operands of matrix products, their exact results, and what all implementations are held
// to.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/kernels/matmul.h"
#include "base/random.h"
#include "base/text.h"

namespace tessera::cpu {

// Elements as values, and the bytes of a dtype that hold them.
inline float round_to(DType d, float x) {
  return d == DType::kBF16 ? static_cast<float>(BF16(x)) : x;
}

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

// `spare` is added to every leading dimension.
inline MatmulProblem problem(int64_t m, int64_t n, int64_t k, bool ta, bool tb, DTypes d,
                             bool accumulate, int64_t spare = 0) {
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

inline std::string describe(const MatmulProblem& p) {
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
    multiply();
  }

  // Anew, after a or b was changed.
  void multiply() {
    exact.assign(static_cast<size_t>(m * n), 0.0);
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
    for (int64_t q = 0; q < p.k; ++q)
      for (int64_t j = 0; j < p.n; ++j)
        b.set(p.b, p.transpose_b ? j * p.ldb + q : q * p.ldb + j,
              s.b[static_cast<size_t>(q * p.n + j)]);
    if (!p.accumulate) return;  // NaN: the old C must not be used
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) c.set(p.c, i * p.ldc + j, s.old[s.at(i, j)]);
  }

  void run(const Matmul& matmul, int threads, int64_t reuse_distance = 0) const {
    ThreadPool pool(threads);
    Buffer workspace(matmul.workspace_bytes(threads));
    matmul.run(pool, a.data(), b.data(), c.data(), workspace.data(),
               matmul.problem().bias ? bias.data() : nullptr, reuse_distance);
  }
};

inline double error_of(const Sample& s, const MatmulProblem& p, const Buffer& c) {
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

// f32 as three bf16 (amx/matmul_f32.cpp).
inline bool in_parts(const Matmul& matmul) {
  return matmul.description().find("bf16x3") != std::string::npos;
}

// Calls f(matmul, isa) for every implementation and instruction set that takes the problem here.
template <class F>
void for_implementations(const MatmulProblem& p, F f) {
  for (const MatmulImplementation& implementation : matmul_implementations()) {
    for (Isa isa : kIsas) {
      if (isa > detect_isa()) continue;
      // The vector kernel of these is that of AVX-512.
      const bool has_avx512s = isa == Isa::kAvx512Bf16 || isa == Isa::kAmx;
      if (implementation.name == "vector" && has_avx512s) continue;
      std::unique_ptr<const Matmul> matmul = implementation.make(p, isa);
      if (!matmul) continue;
      SCOPED_TRACE(cat(matmul->description(), " on ", name(isa), ": ", describe(p)));
      f(*matmul, isa);
    }
  }
}

inline void check_accuracy(const Sample& s, const MatmulProblem& p) {
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

}  // namespace tessera::cpu
