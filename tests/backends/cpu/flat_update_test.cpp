// The kernels of sgd and lion; that of adamw has its own test.
#include "backends/cpu/kernels/lion.h"
#include "backends/cpu/kernels/sgd.h"
#include "tests/backends/cpu/row_kernels.h"

namespace tessera::cpu {
namespace {

struct State {
  Tensor w, m;
  explicit State(int64_t n)
      : w(Tensor::random(DType::kF32, n, 1)), m(Tensor::random(DType::kF32, n, 2, 0.1)) {}
  bool operator==(const State&) const = default;
};

// What the formulas need of an element, in f64.
struct Element {
  double w, m, g, decay, lr;
};

struct SgdKernel {
  using Arguments = Sgd;
  static constexpr double kMomentum = 0.9;
  static void complete(Sgd& args) { args.momentum = kMomentum; }
  static void run(const Sgd& args, Isa isa, ThreadPool& pool) { sgd(args, isa, pool); }
  static double momentum(const Element& e) { return kMomentum * e.m + e.g + e.decay * e.w; }
  static double weight(const Element& e) { return e.w - e.lr * momentum(e); }
};

struct LionKernel {
  using Arguments = Lion;
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.99;
  static void complete(Lion& args) {
    args.beta1 = kBeta1;
    args.beta2 = kBeta2;
  }
  static void run(const Lion& args, Isa isa, ThreadPool& pool) { lion(args, isa, pool); }
  static double momentum(const Element& e) { return kBeta2 * e.m + (1 - kBeta2) * e.g; }
  static double weight(const Element& e) {
    double direction = kBeta1 * e.m + (1 - kBeta1) * e.g;
    double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    return e.w - e.lr * (sign + e.decay * e.w);
  }
};

template <class Kernel>
struct Step {
  Tensor g;
  std::vector<int64_t> begins{0};
  std::vector<float> decays{0.1f};
  float lr = 3e-3f, scale = 0.25f;
  uint8_t ok = 1;

  void run(State& s, Isa isa, ThreadPool& pool) const {
    typename Kernel::Arguments args{};
    args.w = s.w.f32();
    args.m = s.m.f32();
    args.g = g.f32();
    args.size = g.size();
    args.segment_begin = begins.data();
    args.segment_decay = decays.data();
    args.segments = static_cast<int64_t>(begins.size());
    args.lr = &lr;
    args.scale = &scale;
    args.ok = &ok;
    Kernel::complete(args);
    Kernel::run(args, isa, pool);
  }
  Element element(const State& before, int64_t i) const {
    double decay = 0;  // of the last segment that begins at or before i
    for (size_t k = 0; k < begins.size(); ++k)
      if (begins[k] <= i) decay = decays[k];
    return {before.w[i], before.m[i], g[i] * scale, decay, lr};
  }
};

template <class Kernel>
class FlatUpdate : public testing::Test {};
using Kernels = testing::Types<SgdKernel, LionKernel>;
TYPED_TEST_SUITE(FlatUpdate, Kernels);

TYPED_TEST(FlatUpdate, MatchesFormulaAtAnySizeAndCut) {
  for (Isa isa : isas_here()) {
    for (int64_t n : {1, 15, 16, 17, 100, 40001}) {
      SCOPED_TRACE(cat(name(isa), " ", n));
      Step<TypeParam> step{Tensor::random(DType::kF32, n, 4)};
      // Odd cuts inside a tile, an empty segment, one across tiles, two behind the end.
      step.begins = {0, 3, 3, 50, 16383, 40000, 50000, 50000};
      step.decays = {0.1f, 9.0f, 0.0f, 0.2f, 0.3f, 0.4f, 9.0f, 9.0f};
      State before(n);
      State after = same_for_all_threads([&](ThreadPool& pool) {
        State s = before;
        step.run(s, isa, pool);
        return s;
      });
      for (int64_t i = 0; i < n; ++i) {
        Element e = step.element(before, i);
        ASSERT_NEAR(after.w[i], TypeParam::weight(e), 3e-7 * (1 + std::abs(e.w))) << i;
        ASSERT_NEAR(after.m[i], TypeParam::momentum(e), 2e-7 * (1 + std::abs(e.w))) << i;
      }
    }
  }
}

// What lies between parameters is zero and stays zero: Lion's step of a momentum of 0 is 0.
TYPED_TEST(FlatUpdate, ZeroStaysZero) {
  for (Isa isa : isas_here()) {
    Step<TypeParam> step{Tensor(DType::kF32, 21)};
    State s(21);
    s.w = s.m = Tensor(DType::kF32, 21);
    step.run(s, isa, pool_of(1));
    for (int64_t i = 0; i < 21; ++i) {
      EXPECT_EQ(s.w[i], 0);
      EXPECT_EQ(s.m[i], 0);
    }
  }
}

TYPED_TEST(FlatUpdate, ChangesNoBitUnlessOk) {
  for (Isa isa : isas_here()) {
    Step<TypeParam> step{Tensor(DType::kF32, 20000, std::nan(""))};
    step.lr = step.scale = NAN;
    step.ok = 0;
    State before(20000), s = before;
    step.run(s, isa, pool_of(2));
    EXPECT_TRUE(s == before);
  }
}

}  // namespace
}  // namespace tessera::cpu
