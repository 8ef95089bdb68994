#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "runtime/host_executable.h"
#include "tests/backends/cpu/allocation_count.h"
#include "tests/runtime/number_kernels.h"

namespace tessera {
namespace {

const TensorType kPair{{2}, DType::kF32};
using Floats = std::vector<float>;

// sum += x * y; outputs the product, and the old sum.
Graph sum_program() {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, kPair),
        y = g.input("y", InputKind::kArgument, kPair);
  Value sum = g.input("sum", InputKind::kState, kPair);
  Value product = mul(g, x, y);
  g.update("sum", add(g, sum, product));
  g.output("product", product);
  g.output("old", sum);
  return g;
}

// sum = -sum: a program without arguments.
Graph negate_program() {
  Graph g;
  Value sum = g.input("sum", InputKind::kState, kPair);
  g.update("sum",
           unary(g, UnaryKind::kNeg, unary(g, UnaryKind::kNeg, unary(g, UnaryKind::kNeg, sum))));
  return g;
}

class Running : public testing::Test {
 protected:
  Running()
      : sum(compile(sum_program(), number_kernels())),
        negate(compile(negate_program(), number_kernels())) {
    arenas.emplace(ProgramMemory{std::max(sum->memory().arena, negate->memory().arena)});
    std::memset(arenas->near().data(), 0xFF, static_cast<size_t>(arenas->bytes()));
    sum->bind(state, *arenas);
    negate->bind(state, *arenas);
  }
  static Floats floats(const void* data) {
    return {static_cast<const float*>(data)[0], static_cast<const float*>(data)[1]};
  }

  std::unique_ptr<HostExecutable> sum, negate;
  HostState state;
  std::optional<HostArenas> arenas;
  Floats a{1, 2}, b{3, 4}, c{10, 20};
};

TEST_F(Running, StateOutlivesARunAndIsSharedByPrograms) {
  Arguments arguments{{"x", a.data()}, {"y", b.data()}};
  sum->run(arguments);
  EXPECT_EQ(floats(sum->output("product")), (Floats{3, 8}));
  EXPECT_EQ(floats(sum->output("old")), (Floats{0, 0}));
  sum->run(arguments);
  EXPECT_EQ(floats(state.data("sum")), (Floats{6, 16}));
  EXPECT_EQ(floats(sum->output("old")), (Floats{3, 8})) << "as it was before the update";
  negate->run({});
  EXPECT_EQ(floats(state.data("sum")), (Floats{-6, -16}));
  sum->run(arguments);
  EXPECT_EQ(floats(state.data("sum")), (Floats{-3, -8}));
  EXPECT_EQ(floats(sum->output("old")), (Floats{-6, -16}));
}

TEST_F(Running, ArgumentsAreReadWhereTheyAreEveryTime) {
  sum->run({{"x", a.data()}, {"y", b.data()}});
  a = {5, 6};  // the same address
  sum->run({{"x", a.data()}, {"y", b.data()}});
  EXPECT_EQ(floats(sum->output("product")), (Floats{15, 24}));
  sum->run({{"x", a.data()}, {"y", c.data()}});
  EXPECT_EQ(floats(sum->output("product")), (Floats{50, 120}));
  sum->run({{"x", c.data()}, {"y", c.data()}});
  EXPECT_EQ(floats(sum->output("product")), (Floats{100, 400}));
  sum->run({{"x", a.data()}, {"y", b.data()}});
  EXPECT_EQ(floats(sum->output("product")), (Floats{15, 24}));
}

TEST_F(Running, BindingAgainTakesTheOtherStateAndArena) {
  Arguments arguments{{"x", a.data()}, {"y", b.data()}};
  sum->run(arguments);
  negate->run({});
  EXPECT_EQ(floats(state.data("sum")), (Floats{-3, -8}));
  HostState other;
  HostArenas other_arenas(ProgramMemory{arenas->bytes()});
  sum->bind(other, other_arenas);
  negate->bind(other, other_arenas);
  sum->run(arguments);
  negate->run({});
  EXPECT_EQ(floats(other.data("sum")), (Floats{-3, -8}));
  EXPECT_EQ(floats(state.data("sum")), (Floats{-3, -8})) << "untouched";
}

TEST_F(Running, AListenerHearsOfEveryInstructionInOrderUntilItLeaves) {
  struct Listener final : RunListener {
    std::string heard;
    void begins(const Executable& program) override {
      heard += cat("begin ", program.graph().nodes().size());
    }
    void done(size_t instruction, const TimeSpan* exchange) override {
      heard += cat(" ", instruction, exchange ? " exchange" : "");
    }
    void ends() override { heard += " end;"; }
  } listener;
  Arguments arguments{{"x", a.data()}, {"y", b.data()}};
  std::string expected = cat("begin ", sum->graph().nodes().size());
  for (size_t i = 0; i < sum->plan()->instructions.size(); ++i) expected += cat(" ", i);
  expected += " end;";
  EXPECT_TRUE(sum->add_listener(listener));
  EXPECT_TRUE(sum->add_listener(listener)) << "each hears once";
  sum->run(arguments);
  negate->run({});
  sum->run(arguments);
  EXPECT_EQ(listener.heard, expected + expected)
      << "nothing of programs to which it does not listen";
  sum->remove_listener(listener);
  sum->run(arguments);
  EXPECT_EQ(listener.heard, expected + expected);
  EXPECT_EQ(floats(sum->output("product")), (Floats{3, 8}));
}

TEST_F(Running, RefusesAMissingArgumentAndGoesOnAfterwards) {
  Arguments arguments{{"x", a.data()}, {"y", b.data()}};
  sum->run(arguments);
  EXPECT_THROW(sum->run({{"x", c.data()}}), InternalError);
  EXPECT_THROW(sum->run({{"x", c.data()}, {"y", nullptr}}), InternalError);
  sum->run(arguments);
  EXPECT_EQ(floats(sum->output("product")), (Floats{3, 8}));
  EXPECT_EQ(floats(state.data("sum")), (Floats{6, 16}));
}

TEST_F(Running, RefusesWrongUse) {
  auto fresh = compile(sum_program(), number_kernels());
  EXPECT_THROW(fresh->run({{"x", a.data()}, {"y", b.data()}}), InternalError) << "not bound";
  HostArenas small(ProgramMemory{64});
  ASSERT_LT(small.bytes(), fresh->memory().arena);
  EXPECT_THROW(fresh->bind(state, small), InternalError);
  HostState other;
  other.declare("sum", {{3}, DType::kF32});
  EXPECT_THROW(fresh->bind(other, *arenas), InternalError);
  EXPECT_THROW(sum->output("loss"), InternalError);
}

TEST_F(Running, TheObserverSeesEveryLaunchOnceInOrder) {
  std::vector<std::string> ops;
  std::vector<Floats> seen;
  NodeObserver observer = [&](const NodeEvent& event) {
    ops.emplace_back(event.node.op->name());
    ASSERT_EQ(event.outputs.size(), 1u);
    seen.push_back(floats(event.outputs[0]));
    EXPECT_GE(event.seconds, 0);
    EXPECT_EQ(&event.graph, &sum->graph());
  };
  sum->run({{"x", a.data()}, {"y", b.data()}}, &observer);
  EXPECT_EQ(ops, (std::vector<std::string>{"mul", "add"}));
  EXPECT_EQ(seen, (std::vector<Floats>{{3, 8}, {3, 8}}));
}

TEST_F(Running, ARunAllocatesNothing) {
  Arguments arguments{{"x", a.data()}, {"y", b.data()}};
  int launches = 0;
  NodeObserver observer = [&](const NodeEvent&) { ++launches; };
  sum->run(arguments, &observer);
  int64_t before = allocation_count();
  sum->run(arguments);
  arguments["x"] = c.data();  // elsewhere
  sum->run(arguments, &observer);
  EXPECT_EQ(allocation_count() - before, 0);
  EXPECT_EQ(launches, 4);
}

TEST(Executable, FillsGapsAndCopiesOnEveryRun) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, kPair);
  g.output("flat", g.add_one(std::make_shared<Flatten>(8, std::vector<int64_t>{4, 1}),
                             {unary(g, UnaryKind::kNeg, x), x}));
  auto executable = compile(g, number_kernels());
  HostState state;
  HostArenas arenas(executable->memory());
  executable->bind(state, arenas);
  Floats values{1, 2}, others{3, 4};
  for (const Floats& given : {values, others}) {
    std::memset(arenas.near().data(), 0xFF, static_cast<size_t>(arenas.bytes()));
    executable->run({{"x", given.data()}});
    auto* flat = static_cast<const float*>(executable->output("flat"));
    EXPECT_EQ(Floats(flat, flat + 8),
              (Floats{0, given[0], given[1], 0, -given[0], -given[1], 0, 0}));
  }
}

TEST(Executable, TellsKernelsHowLongAgoTheirResultWasAccessed) {
  std::vector<int64_t> told;
  KernelTable table;
  table.add("neg", [&](const PrepareContext&) {
    return Launch{"neg", 0, [&](const LaunchArguments& a) { told.push_back(a.reuse_distance); }};
  });
  Graph g;
  Value x = g.input("x", InputKind::kArgument, kPair);
  Value y = unary(g, UnaryKind::kNeg, x);
  g.output("x", x);  // so that y is not where x is
  g.output("y", y);
  auto program = compile(g, table);
  HostState state;
  HostArenas arenas(program->memory());
  program->bind(state, arenas);
  Floats argument{1, 2};
  program->run({{"x", argument.data()}});
  EXPECT_EQ(told, std::vector<int64_t>{kPair.bytes()});
}

TEST(Executable, OfNothingRuns) {
  Graph g;
  auto executable = compile(g, number_kernels());
  HostState state;
  HostArenas arenas(executable->memory());
  executable->bind(state, arenas);
  executable->run({});
}

}  // namespace
}  // namespace tessera
