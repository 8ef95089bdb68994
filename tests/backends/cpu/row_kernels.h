#pragma once
// What the tests of the row kernels share: tensors of either dtype read as doubles, and the loops
// over instruction sets, dtypes and thread counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace tessera::cpu {

// The nearest value of `dtype` (kF32 or kBF16).
inline double rounded(DType dtype, double x) {
  auto f = static_cast<float>(x);
  return dtype == DType::kF32 ? f : static_cast<float>(BF16(f));
}

// n elements in a heap block of exactly their size, so that a sanitizer sees the first byte too
// many.
class Tensor {
 public:
  Tensor(DType dtype, int64_t n, double value = 0) : dtype_(dtype), n_(n), bytes_(bytes()) {
    for (int64_t i = 0; i < n; ++i) set(i, value);
  }
  // Normal numbers times `spread`, a function of `seed`.
  static Tensor random(DType dtype, int64_t n, uint64_t seed, double spread = 1) {
    Tensor t(dtype, n);
    for (int64_t i = 0; i < n; ++i) {
      t.set(i, spread * random_normal(seed, stream_of("test"), static_cast<uint64_t>(i)));
    }
    return t;
  }

  DType dtype() const { return dtype_; }
  int64_t size() const { return n_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  void* at(int64_t i) { return bytes_.data() + i * size_of(dtype_); }
  const void* at(int64_t i) const { return bytes_.data() + i * size_of(dtype_); }
  float* f32() { return static_cast<float*>(data()); }
  const float* f32() const { return static_cast<const float*>(data()); }
  BF16* bf16() { return static_cast<BF16*>(data()); }

  double operator[](int64_t i) const {
    if (dtype_ == DType::kF32) return f32()[i];
    return static_cast<float>(static_cast<const BF16*>(data())[i]);
  }
  void set(int64_t i, double value) {
    auto f = static_cast<float>(value);
    BF16 b(f);
    if (dtype_ == DType::kF32) {
      std::memcpy(at(i), &f, sizeof f);
    } else {
      std::memcpy(at(i), &b, sizeof b);
    }
  }
  bool operator==(const Tensor& other) const { return bytes_ == other.bytes_; }

 private:
  size_t bytes() const { return static_cast<size_t>(n_ * size_of(dtype_)); }

  DType dtype_;
  int64_t n_;
  std::vector<std::byte> bytes_;
};

using Doubles = std::vector<double>;

// |a - b| / |b|, Euclidean; NaN anywhere gives NaN, which no comparison below accepts.
template <class A>
double relative_error(const A& a, const Doubles& exact) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < std::ssize(exact); ++i) {
    double d = a[i] - exact[i];
    difference += d * d;
    norm += exact[i] * exact[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// The rule for a fused kernel: at most 1.5 times the error of its decomposition, whose every
// operation (a sum counts as one) is rounded to the dtype. A decomposition of few elements can be
// nearly exact by luck: errors at the level of one rounding are always accepted.
inline void expect_as_good(const Tensor& kernel, const Doubles& decomposed, const Doubles& exact) {
  double rounding = kernel.dtype() == DType::kF32 ? 0x1p-24 : 0x1p-9;
  EXPECT_LE(relative_error(kernel, exact),
            1.5 * std::max(relative_error(decomposed, exact), rounding));
}

inline std::vector<Isa> isas_here() {
  std::vector<Isa> isas;
  for (Isa isa : kIsas) {
    if (isa <= detect_isa()) isas.push_back(isa);
  }
  return isas;
}

inline ThreadPool& pool_of(int threads) {
  static std::vector<std::unique_ptr<ThreadPool>> pools(6);
  auto& pool = pools[static_cast<size_t>(threads)];
  if (!pool) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

// body(isa, dtype) for everything that this machine can run.
template <class Body>
void for_isas_and_dtypes(const Body& body) {
  for (Isa isa : isas_here()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(cat(name(isa), " ", name(dtype)));
      body(isa, dtype);
    }
  }
}

// run(pool) at 1, 2, 3 and 5 threads: the same bits every time. Returns the result.
template <class Run>
auto same_for_all_threads(const Run& run) {
  auto result = run(pool_of(1));
  for (int threads : {2, 3, 5})
    EXPECT_TRUE(run(pool_of(threads)) == result) << threads << " threads";
  return result;
}

}  // namespace tessera::cpu
