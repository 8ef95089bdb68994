// What compile() makes of a graph: kernels, decompositions and errors.
#include <gtest/gtest.h>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "runtime/host_executable.h"
#include "tests/base/error_expectation.h"
#include "tests/runtime/number_kernels.h"

namespace tessera {
namespace {

// square = x * x; fourth = square(square(x)).
class Square final : public OpOf<Square> {
 public:
  std::string_view name() const override { return "square"; }
  Tier tier() const override { return Tier::kComposite; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0]};
  }
  std::vector<Value> decompose(Graph& g, std::span<const Value> inputs) const override {
    return {mul(g, inputs[0], inputs[0])};
  }
  auto fields() const { return std::make_tuple(); }
};
class Fourth final : public OpOf<Fourth> {
 public:
  std::string_view name() const override { return "fourth"; }
  Tier tier() const override { return Tier::kComposite; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0]};
  }
  std::vector<Value> decompose(Graph& g, std::span<const Value> inputs) const override {
    auto square = std::make_shared<Square>();
    return {g.add_one(square, {g.add_one(square, {inputs[0]})})};
  }
  auto fields() const { return std::make_tuple(); }
};

Graph fourth_of(DType dtype = DType::kF32) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{2}, dtype});
  Scope scope(g, "layers.0");
  g.set_phase(Phase::kBackward);
  g.output("y", g.add_one(std::make_shared<Fourth>(), {x}));
  return g;
}

std::string ops_of(const Graph& g) {
  std::string ops;
  for (const Node& node : g.nodes()) ops += cat(ops.empty() ? "" : " ", node.op->name());
  return ops;
}

std::vector<float> run_fourth(HostExecutable& executable) {
  HostState state;
  HostArenas arenas(executable.memory());
  executable.bind(state, arenas);
  std::vector<float> x{2, -3};
  executable.run({{"x", x.data()}});
  auto* y = static_cast<const float*>(executable.output("y"));
  return {y[0], y[1]};
}

Prepare square_kernel(bool accepts) {
  return [accepts](const PrepareContext&) -> Prepared {
    if (!accepts) return "not today";
    return Launch{"square", 0, [](const LaunchArguments& a) {
                    for (int i = 0; i < 2; ++i)
                      a.output<float>(0)[i] = a.input<float>(0)[i] * a.input<float>(0)[i];
                  }};
  };
}

TEST(Compile, DecomposesWhatNoKernelTakesDownToPrimitives) {
  KernelTable table = number_kernels();
  table.add("square", square_kernel(false));
  auto executable = compile(fourth_of(), table);
  EXPECT_EQ(ops_of(executable->graph()), "input mul mul");
  EXPECT_EQ(executable->graph().nodes()[1].scope, "layers.0");
  EXPECT_EQ(executable->graph().nodes()[1].phase, Phase::kBackward);
  EXPECT_EQ(executable->launch(1).kernel, "number");
  EXPECT_EQ(executable->declined(), (std::vector<Declined>{{"fourth", "no kernel for fourth", 1},
                                                           {"square", "not today", 2}}));
  EXPECT_EQ(run_fourth(*executable), (std::vector<float>{16, 81}));
}

TEST(Compile, StopsWhereAKernelTakesAComposite) {
  KernelTable table = number_kernels();
  table.add("square", square_kernel(true));
  auto executable = compile(fourth_of(), table);
  EXPECT_EQ(ops_of(executable->graph()), "input square square");
  ASSERT_EQ(executable->declined().size(), 1u);
  EXPECT_EQ(to_string(executable->declined()[0]), "fourth x 1: no kernel for fourth");
  EXPECT_EQ(run_fourth(*executable), (std::vector<float>{16, 81}));
}

TEST(Compile, NamesAPrimitiveThatNoKernelTakes) {
  EXPECT_EQ(user_error([] { compile(fourth_of(DType::kBF16), number_kernels()); }),
            "this backend cannot run %1:bf16[2] = mul(%0, %0)  # layers.0 backward: not for bf16");
  Graph g;
  g.output("y", unary(g, UnaryKind::kExp, g.input("x", InputKind::kArgument, {{2}, DType::kF32})));
  expect_contains(user_error([&] { compile(g, number_kernels()); }),
                  "exp(%0)  # forward: no kernel for exp");
}

TEST(Compile, NeedsNoKernelForViewsAndPlacement) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{4}, DType::kF32});
  g.output("y", reshape(g, unary(g, UnaryKind::kNeg, x), {2, 2}));
  for (bool views : {true, false}) {
    auto executable = compile(g, number_kernels(), {views, true, true});
    EXPECT_FALSE(executable->launch(0).run);
    EXPECT_TRUE(executable->launch(1).run);
    EXPECT_FALSE(executable->launch(2).run);
    EXPECT_EQ(executable->plan()->copies, views ? 0 : 1);
  }
}

TEST(Compile, RefusesParameters) {
  Graph g;
  g.output("y", unary(g, UnaryKind::kNeg, g.input("w", InputKind::kParameter, {{2}, DType::kF32})));
  EXPECT_THROW(compile(g, number_kernels()), InternalError);
}

// An op whose decomposition forgets a result.
class Forgetful final : public OpOf<Forgetful> {
 public:
  std::string_view name() const override { return "forgetful"; }
  Tier tier() const override { return Tier::kComposite; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0], context.inputs[0]};
  }
  std::vector<Value> decompose(Graph&, std::span<const Value> inputs) const override {
    return {inputs[0]};
  }
  auto fields() const { return std::make_tuple(); }
};

TEST(Compile, RefusesADecompositionThatForgetsAResult) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{2}, DType::kF32});
  g.output("y", g.add(std::make_shared<Forgetful>(), {x})[1]);
  EXPECT_THROW(compile(g, number_kernels()), InternalError);
}

}  // namespace
}  // namespace tessera
