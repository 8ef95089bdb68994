#include "backends/cpu/kernels/adamw.h"

#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

struct State {
  Tensor w, m, v, shadow;
  explicit State(int64_t n)
      : w(Tensor::random(DType::kF32, n, 1)),
        m(Tensor::random(DType::kF32, n, 2, 0.1)),
        v(Tensor::random(DType::kF32, n, 3)),
        shadow(DType::kBF16, n, 7) {
    for (int64_t i = 0; i < n; ++i) v.set(i, 0.01 * v[i] * v[i]);
  }
  bool operator==(const State&) const = default;
};

struct Step {
  Tensor g;
  std::vector<int64_t> begins{0};
  std::vector<float> decays{0.1f};
  float lr = 3e-3f, scale = 0.25f;
  uint8_t ok = 1;
  int64_t step = 5;

  void run(State& s, Isa isa, ThreadPool& pool, bool with_shadow = true) const {
    adamw({.w = s.w.f32(),
           .m = s.m.f32(),
           .v = s.v.f32(),
           .g = g.f32(),
           .shadow = with_shadow ? s.shadow.bf16() : nullptr,
           .size = g.size(),
           .segment_begin = begins.data(),
           .segment_decay = decays.data(),
           .segments = static_cast<int64_t>(begins.size()),
           .lr = &lr,
           .scale = &scale,
           .ok = &ok,
           .step = &step,
           .beta1 = 0.9,
           .beta2 = 0.95,
           .epsilon = 1e-8},
          isa, pool);
  }
};

// w after one step in f64; the last segment that begins at or before i gives its decay.
Doubles expected_weights(const State& before, const Step& s) {
  Doubles w;
  for (int64_t i = 0; i < s.g.size(); ++i) {
    double decay = 0, g = s.g[i] * s.scale;
    for (size_t k = 0; k < s.begins.size(); ++k) {
      if (s.begins[k] <= i) decay = s.decays[k];
    }
    double m = 0.9 * before.m[i] + 0.1 * g, v = 0.95 * before.v[i] + 0.05 * g * g;
    auto t = static_cast<double>(s.step);
    double root = std::sqrt(v / (1 - std::pow(0.95, t)));
    w.push_back(before.w[i] -
                s.lr * (m / (1 - std::pow(0.9, t)) / (root + 1e-8) + decay * before.w[i]));
  }
  return w;
}

TEST(AdamW, MatchesFormulaAtAnySizeAndCut) {
  for (Isa isa : isas_here()) {
    for (int64_t n : {1, 15, 16, 17, 100, 40001}) {
      SCOPED_TRACE(cat(name(isa), " ", n));
      Step step{Tensor::random(DType::kF32, n, 4)};
      // Odd cuts inside a tile, an empty segment, one across tiles, two behind the end.
      step.begins = {0, 3, 3, 50, 16383, 40000, 50000, 50000};
      step.decays = {0.1f, 9.0f, 0.0f, 0.2f, 0.3f, 0.4f, 9.0f, 9.0f};
      State before(n);
      State after = same_for_all_threads([&](ThreadPool& pool) {
        State s = before;
        step.run(s, isa, pool);
        return s;
      });
      Doubles w = expected_weights(before, step);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(after.w[i], w[static_cast<size_t>(i)], 3e-7 * (1 + std::abs(before.w[i]))) << i;
        double g = step.g[i] * step.scale;
        ASSERT_NEAR(after.m[i], 0.9 * before.m[i] + 0.1 * g, 1e-7);
        ASSERT_NEAR(after.v[i], 0.95 * before.v[i] + 0.05 * g * g, 1e-7 * (0.1 + after.v[i]));
        ASSERT_EQ(after.shadow[i], rounded(DType::kBF16, after.w[i]));
      }
      State without = before;
      step.run(without, isa, pool_of(2), false);
      EXPECT_TRUE(without.w == after.w);
      EXPECT_TRUE(without.shadow == before.shadow);
    }
  }
}

// The first step from zero moments moves every weight by lr against the gradient's sign.
TEST(AdamW, FirstStepIsTheSignOfTheGradient) {
  for (Isa isa : isas_here()) {
    Step step{Tensor::random(DType::kF32, 33, 4)};
    step.decays = {0.0f};
    step.step = 1;
    State s(33);
    s.m = s.v = Tensor(DType::kF32, 33);
    Tensor before = s.w;
    step.run(s, isa, pool_of(1));
    for (int64_t i = 0; i < 33; ++i) {
      EXPECT_NEAR(s.w[i] - before[i], step.g[i] > 0 ? -step.lr : step.lr, 1e-6);
    }
  }
}

// What lies between parameters is zero and stays zero.
TEST(AdamW, ZeroStaysZero) {
  for (Isa isa : isas_here()) {
    Step step{Tensor(DType::kF32, 21)};
    State s(21);
    s.w = s.m = s.v = Tensor(DType::kF32, 21);
    step.run(s, isa, pool_of(1));
    for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(s.w[i], 0);
  }
}

TEST(AdamW, ChangesNoBitUnlessOk) {
  for (Isa isa : isas_here()) {
    Step step{Tensor(DType::kF32, 20000, std::nan(""))};
    step.lr = step.scale = NAN;
    step.ok = 0;
    step.step = 0;
    State before(20000);
    State s = before;
    step.run(s, isa, pool_of(2));
    EXPECT_TRUE(s.w == before.w);
    EXPECT_TRUE(s.m == before.m);
    EXPECT_TRUE(s.v == before.v);
    for (int64_t i = 0; i < 20000; ++i) ASSERT_EQ(s.shadow[i], rounded(DType::kBF16, s.w[i]));
  }
}

}  // namespace
}  // namespace tessera::cpu
