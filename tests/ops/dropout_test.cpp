// What the mask of dropout depends on, and how it is distributed. Its gradient and parts are in
// gradient_test.cpp, kernels in tests/backends/cpu.
#include "ops/composite/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "autodiff/backward.h"
#include "backends/ref/interpreter.h"
#include "ops/composite/attention.h"
#include "ops/primitive/reduction.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 8, kWidth = 5000;

// dropout of ones [rows, width]
std::vector<double> run(const std::vector<double>& keys, double p, const std::string& stream,
                        int64_t width = kWidth) {
  Graph g;
  auto rows = static_cast<int64_t>(keys.size());
  Value x = g.input("x", InputKind::kArgument, {{rows, width}, DType::kF64});
  Value k = g.input("keys", InputKind::kArgument, {{rows}, DType::kI64});
  g.output("y", dropout(g, x, k, p, stream));
  std::vector<double> ones(static_cast<size_t>(rows * width), 1);
  return ref::run(g, {{"x", {ones}}, {"keys", {keys}}}).outputs.at("y")[0].data;
}

std::vector<double> keys_of(uint64_t seed, uint64_t step, uint64_t first, int64_t rows = kRows) {
  std::vector<double> keys;
  for (int64_t b = 0; b < rows; ++b)
    keys.push_back(
        static_cast<double>(dropout_row_key(seed, step, first + static_cast<uint64_t>(b))));
  return keys;
}

// Share of the elements that both keep.
double both_keep(const std::vector<double>& a, const std::vector<double>& b) {
  double count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != 0 && b[i] != 0;
  return count / static_cast<double>(a.size());
}

TEST(Dropout, KeepsItsShareAndTheMean) {
  for (double p : {0.1, 0.25, 0.5, 0.9}) {
    std::vector<double> y = run(keys_of(1, 2, 3), p, "noise");
    double kept = both_keep(y, y), deviation = std::sqrt(p * (1 - p) / (kRows * kWidth));
    EXPECT_NEAR(kept, 1 - p, 5 * deviation);
    for (double v : y) ASSERT_TRUE(v == 0 || std::abs(v * (1 - p) - 1) < 2e-4) << v;
  }
  // Multiples of 2^-16 exactly, and every element of an average is kept sometimes.
  EXPECT_EQ(dropout_threshold(0.25), 16384);
  EXPECT_EQ(dropout_scale(0.75), 4);
  EXPECT_EQ(dropout_threshold(0.9999999), 65535);
}

TEST(Dropout, IsIndependentOverStreamsKeysAndElements) {
  constexpr double kP = 0.3, kBoth = (1 - kP) * (1 - kP);
  const double allowed = 5 * std::sqrt(kBoth * (1 - kBoth) / (kRows * kWidth));
  std::vector<double> y = run(keys_of(1, 2, 3), kP, "layers.0.attn");
  for (const auto& other :
       {run(keys_of(1, 2, 3), kP, "layers.1.attn"), run(keys_of(2, 2, 3), kP, "layers.0.attn"),
        run(keys_of(1, 3, 3), kP, "layers.0.attn"), run(keys_of(1, 2, 11), kP, "layers.0.attn")})
    EXPECT_NEAR(both_keep(y, other), kBoth, allowed);
  for (size_t lag : {1, 2, 4, 8, 32, 64, 128, 5000}) {
    std::vector<double> a(y.begin(), y.end() - static_cast<std::ptrdiff_t>(lag)),
        b(y.begin() + static_cast<std::ptrdiff_t>(lag), y.end());
    EXPECT_NEAR(both_keep(a, b), kBoth, 1.5 * allowed) << lag;
  }
}

TEST(Dropout, ARowFollowsFromItsKeyAlone) {
  std::vector<double> keys = keys_of(1, 2, 3), all = run(keys, 0.3, "noise");
  for (size_t b = 0; b < keys.size(); ++b) {
    std::vector<double> row(all.begin() + static_cast<std::ptrdiff_t>(b) * kWidth,
                            all.begin() + static_cast<std::ptrdiff_t>(b + 1) * kWidth);
    EXPECT_EQ(run({keys[b]}, 0.3, "noise"), row);
  }
}

TEST(Dropout, KeysDifferAndFitIntoADouble) {
  std::set<int64_t> keys;
  for (uint64_t seed = 0; seed < 5; ++seed)
    for (uint64_t step = 0; step < 10; ++step)
      for (uint64_t sample = 0; sample < 20; ++sample)
        keys.insert(dropout_row_key(seed, step, sample));
  EXPECT_EQ(keys.size(), 1000u);
  EXPECT_GE(*keys.begin(), 0);
  EXPECT_LT(*keys.rbegin(), int64_t{1} << 53);
}

TEST(Dropout, TheGradientHasTheSameMask) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{2, 300}, DType::kF64});
  Value k = g.input("keys", InputKind::kArgument, {{2}, DType::kI64});
  Value y = dropout(g, x, k, 0.4, "noise");
  Value loss = reduce_sum(g, y, {0, 1});
  g.output("y", y);
  g.output("dx", backward(g, loss, std::vector<Value>{x})[0]);
  auto out = ref::run(g, {{"x", {std::vector<double>(600, 1)}}, {"keys", {{5, 6}}}}).outputs;
  EXPECT_EQ(out.at("dx")[0].data, out.at("y")[0].data);
}

TEST(Dropout, NothingIsAddedForZero) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{2, 3, 2, 4}, DType::kF32});
  Value k = g.input("keys", InputKind::kArgument, {{2}, DType::kI64});
  EXPECT_EQ(dropout(g, x, k, 0, "noise"), x);
  EXPECT_EQ(g.nodes().size(), 2u);
  attention(g, x, x, x, 0.5, {}, k, 0, "noise");
  EXPECT_EQ(g.nodes().back().op->key(), Attention(0.5, {}).key());
  EXPECT_EQ(g.nodes().back().inputs.size(), 3u);
}

TEST(Dropout, StreamsMakeOpsDifferent) {
  EXPECT_TRUE(Dropout(0.1, "a") == Dropout(0.1, "a"));
  EXPECT_FALSE(Dropout(0.1, "a") == Dropout(0.1, "b"));
  EXPECT_FALSE(Dropout(0.1, "a") == Dropout(0.2, "a"));
  EXPECT_FALSE(Dropout(0.1, "a") == Dropout(0.1, "a", {1, 8}));
  EXPECT_FALSE(Attention(0.5, {}, {0.1, "a"}) == Attention(0.5, {}, {0.1, "b"}));
}

TEST(Dropout, WhatDoesNotFitIsNamed) {
  auto message = [](double p, const TensorType& keys) {
    Graph g;
    Value x = g.input("x", InputKind::kArgument, {{2, 3}, DType::kF32});
    Value row_keys = g.input("keys", InputKind::kArgument, keys);
    return user_error([&] { dropout(g, x, row_keys, p, "noise"); });
  };
  EXPECT_EQ(message(1, {{2}, DType::kI64}), "[dropout] (C3) p must be in [0, 1), is 1");
  EXPECT_EQ(message(-0.5, {{2}, DType::kI64}), "[dropout] (C3) p must be in [0, 1), is -0.5");
  EXPECT_EQ(message(0.5, {{3}, DType::kI64}),
            "[dropout] (C2) row_keys must be i64 [B]: B = 2, they are i64[3]");
  EXPECT_EQ(message(0.5, {{2}, DType::kI32}),
            "[dropout] (C2) row_keys must be i64 [B]: B = 2, they are i32[2]");
}

}  // namespace
}  // namespace tessera
