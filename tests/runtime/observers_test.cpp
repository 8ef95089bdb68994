#include "runtime/observers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "base/file.h"
#include "ops/primitive/elementwise.h"
#include "runtime/host_executable.h"
#include "tests/base/scratch_directory.h"
#include "tests/runtime/number_kernels.h"

namespace tessera {
namespace {

// -(x * x) + (x * x), in two layers.
class Observed : public testing::Test {
 protected:
  Observed() {
    Graph g;
    Value x = g.input("x", InputKind::kArgument, {{2}, DType::kF32});
    g.set_scope("layers.0.mlp");
    Value square = mul(g, x, x);
    g.set_scope("layers.1.mlp");
    g.set_phase(Phase::kBackward);
    g.output("y", add(g, unary(g, UnaryKind::kNeg, square), square));
    executable = compile(g, number_kernels());
    arenas.emplace(executable->memory());
    executable->bind(state, *arenas);
  }
  void run(float first, float second, const NodeObserver& observer) {
    std::vector<float> x{first, second};
    executable->run({{"x", x.data()}}, &observer);
  }

  std::unique_ptr<HostExecutable> executable;
  HostState state;
  std::optional<HostArenas> arenas;
};

TEST_F(Observed, TheFirstNonFiniteValueIsNamed) {
  NonFiniteFinder finder;
  run(1, 2, finder.observer());
  EXPECT_EQ(finder.first(), "");
  run(1, 1e30f, finder.observer());
  EXPECT_EQ(finder.first(), "mul in layers.0.mlp (forward)");
  run(1, 2, finder.observer());
  EXPECT_EQ(finder.first(), "mul in layers.0.mlp (forward)") << "the first stays";
}

TEST_F(Observed, HashesTellRunsApart) {
  ScratchDirectory directory;
  auto record = [&](const std::string& file, float x) {
    HashRecorder recorder((directory / file).string());
    for (int step : {1, 2}) {
      recorder.begin_step(step);
      run(x, 2, recorder.observer());
    }
  };
  record("a", 1);
  record("b", 1);
  record("c", 1.5);
  std::string a = read_file(directory / "a");
  EXPECT_EQ(a, read_file(directory / "b"));
  EXPECT_NE(a, read_file(directory / "c"));
  auto lines = split(a, '\n');
  ASSERT_EQ(lines.size(), 7u) << "three nodes, two steps and the end";
  EXPECT_EQ(lines[0].substr(0, 31), "1\t0\tlayers.0.mlp\tforward\tmul\t0\t");
  EXPECT_EQ(lines[5].substr(0, 32), "2\t2\tlayers.1.mlp\tbackward\tadd\t0\t");
  EXPECT_THROW(HashRecorder("/nonexistent/hashes"), UserError);
}

TEST_F(Observed, TimeIsAddedUpByOpAndPhase) {
  OpTimer timer;
  run(1, 2, timer.observer());
  run(1, 2, timer.observer());
  auto rows = timer.rows();
  ASSERT_EQ(rows.size(), 3u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].launches, 2);
    EXPECT_EQ(rows[i].flops, 4);
    EXPECT_EQ(rows[i].phase, rows[i].op == "mul" ? Phase::kForward : Phase::kBackward);
    EXPECT_EQ(rows[i].bytes, rows[i].op == "neg" ? 32 : 48);
    if (i > 0) {
      EXPECT_LE(rows[i].seconds, rows[i - 1].seconds);
    }
  }
}

}  // namespace
}  // namespace tessera
