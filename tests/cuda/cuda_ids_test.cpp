// Ids outside of their table are errors of a run that name op, position and id, though kernels
// cannot throw and the host does not wait for them.
#include "ops/composite/embedding.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/cuda/graph_run.h"
#include "tests/programs/tiny_model.h"

namespace tessera::cuda {
namespace {

using CudaIds = CudaTest;

// One op whose first argument, or second, are ids of a table of five rows.
struct IdUse {
  OpPtr op;
  std::vector<TensorType> types;
  size_t ids;
};

std::vector<IdUse> ops_with_ids() {
  const TensorType ids{{300}, DType::kI32}, wide_ids{{300}, DType::kI64},
      table{{5, 3}, DType::kF32}, updates{{300, 3}, DType::kF32};
  return {{std::make_shared<Embedding>(), {ids, table}, 0},
          {std::make_shared<EmbeddingBackward>(5), {ids, updates}, 0},
          {std::make_shared<EmbeddingBackward>(5, false, true), {ids, updates, table}, 0},
          {std::make_shared<Gather>(), {table, wide_ids}, 1},
          {std::make_shared<Gather>(), {table, ids}, 1},
          {std::make_shared<ScatterAdd>(5, DType::kF32), {wide_ids, updates}, 0}};
}

TEST_F(CudaIds, OutsideOfATableAreNamed) {
  CudaBackend backend({});
  for (const IdUse& use : ops_with_ids()) {
    SCOPED_TRACE(use.op->key());
    std::vector<std::vector<double>> values;
    for (const TensorType& type : use.types)
      values.emplace_back(static_cast<size_t>(type.elements()), 1);
    auto run = [&] { return run_op(backend, use.op, use.types, values); };
    std::vector<double>& ids = values[use.ids];
    ids[7] = 4;
    EXPECT_NO_THROW(run());
    for (double wrong : {5.0, -1.0, 2147483647.0}) {
      ids[270] = ids[299] = wrong;
      const std::string error = message_of<InternalError>([&] { run(); });
      expect_contains(error, use.op->name());
      expect_contains(error,
                      cat(": id ", static_cast<int64_t>(wrong), " at position 270, of 5 rows"));
    }
    // It is told once.
    ids[270] = ids[299] = 0;
    EXPECT_NO_THROW(run());
  }
}

TEST_F(CudaIds, OfAnotherPartOfATableAreNoMistake) {
  CudaBackend backend({});
  Graph g;
  const Value ids = g.input("x0", InputKind::kArgument, {{3}, DType::kI32}),
              table = g.input("x1", InputKind::kArgument, {{2, 1}, DType::kF32});
  g.output("y", g.add_one(std::make_shared<Embedding>(true), {ids, table}));
  const GraphResults results = run_graph(backend, g, {{"x0", {{1, 2, -1}}}, {"x1", {{3, 4}}}});
  EXPECT_EQ(results.outputs[0].values, (std::vector<double>{4, 0, 0}));
}

// Through a training step: with CUDA graphs and launch by launch, and when the host is a step
// ahead.
TEST_F(CudaIds, EndAStepWithAnError) {
  for (const auto& [graphs, target] : {std::pair(true, false), {true, true}, {false, true}}) {
    SCOPED_TRACE(cat(graphs, " ", target));
    CudaBackend backend({.graphs = graphs});
    Session session(build_programs(model_builder(tiny_model()), tiny_programs(2, 16, DType::kBF16)),
                    backend);
    session.allocate();
    ThreadPool pool(1);
    session.initialize(7, pool);
    TinyBatch good(2, 16, 1), bad(2, 16, 2);
    (target ? bad.targets : bad.tokens)[19] = 300;
    for (int step = 0; step < 2; ++step)
      EXPECT_TRUE(session.step(std::vector{good.view(), good.view()}, 0.01, 1).ok);
    session.accumulate(std::vector{good.view(), bad.view()}, nullptr);
    PendingStep wrong = session.start_update(0.01, 1, {});
    session.accumulate(std::vector{good.view(), good.view()}, nullptr);
    PendingStep next = session.start_update(0.01, 1, {});
    const std::string error = message_of<InternalError>([&] { wrong.result(); });
    expect_contains(error, target ? "linear_cross_entropy" : "embedding");
    expect_contains(error, ": id 300 at position 19, of 300 rows");
    EXPECT_TRUE(next.result().ok);
  }
}

}  // namespace
}  // namespace tessera::cuda
