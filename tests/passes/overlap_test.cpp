#include "passes/overlap.h"

#include <gtest/gtest.h>

#include "autodiff/backward.h"
#include "ir/marks.h"
#include "ir/verifier.h"
#include "plan/plan.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

// Forward and backward pass of two ranks that have half of every unit each.
struct Sharded {
  ModelGraph model;
  Mesh mesh{{{"shard", 2}}};
  ShardAxes axes{mesh.axis("shard"), {}};
  std::vector<FlatUnit> units;
  Graph graph;

  explicit Sharded(bool tied = false, int64_t layers = 2) : model(tiny_llama(tied, layers)) {
    std::vector<ParameterPart> parts = parameter_parts(model.parameters, mesh, {});
    Graph g = tensor_parallel(model.graph, model.parameters, parts, mesh, {}, false);
    units = make_units(g, model.parameters, parts, axes);
    g = flat_units(g, model.parameters, units, axes);
    std::vector<Value> weights;
    for (const FlatUnit& unit : units) weights.push_back(unit.shard);
    Value loss;
    for (const GraphOutput& output : g.outputs()) {
      if (output.name == "loss_sum") loss = output.value;
    }
    std::vector<Value> gradients = backward(g, sum_over_marks(g, loss), weights);
    for (size_t u = 0; u < units.size(); ++u)
      g.update(cat("gradient.", units[u].name), gradients[u]);
    graph = std::move(g);
  }

  ref::Feeds feeds() const {
    ref::Feeds feeds = tiny_feeds(model, model.graph, {});
    for (const FlatUnit& unit : units) {
      std::vector<std::vector<double>> shards(2);
      for (int64_t i = 0; i < unit.size; ++i)
        shards[static_cast<size_t>(i / unit.shard_size)].push_back(0.01 *
                                                                   static_cast<double>(i % 17));
      feeds[weight_slot(unit)] = shards;
    }
    return feeds;
  }
};

// Position of the gather of the layer, and of the first product in it.
int32_t gather_of(const Graph& g, const std::string& unit) {
  for (int32_t i = 0; i < std::ssize(g.nodes()); ++i) {
    const Node& n = g.nodes()[static_cast<size_t>(i)];
    if (n.op->name() == "all_gather" && n.inputs[0] == g.input_value(cat("weight.", unit)))
      return i;
  }
  return -1;
}
int32_t first_product(const Graph& g, const std::string& layer) {
  for (int32_t i = 0; i < std::ssize(g.nodes()); ++i) {
    const Node& n = g.nodes()[static_cast<size_t>(i)];
    if (n.op->name() == "linear" && n.scope.starts_with(layer)) return i;
  }
  return -1;
}

TEST(Overlap, ChangesNoBit) {
  Sharded s;
  ref::Results expected = ref::run(s.graph, s.feeds());
  for (int distance : {0, 1, 2, 7}) {
    Graph moved = overlap(s.graph, {distance, distance});
    verify(moved, "overlap");
    EXPECT_EQ(moved.nodes().size(), s.graph.nodes().size());
    EXPECT_EQ(difference(expected, ref::run(moved, s.feeds())), "") << distance;
    verify_plan(moved, make_plan(moved, {}));
  }
}

TEST(Overlap, GathersOneLayerAhead) {
  Sharded s;
  Graph none = overlap(s.graph, {0, 0}), one = overlap(s.graph, {1, 1});
  EXPECT_GT(gather_of(none, "layers.1"), first_product(none, "layers.0"));
  EXPECT_LT(gather_of(one, "layers.1"), first_product(one, "layers.0"));
  EXPECT_GT(gather_of(one, "head"), first_product(one, "layers.0"));
  EXPECT_LT(gather_of(one, "head"), first_product(one, "layers.1"));
}

// The plan begins the gather, computes the layer before and only then waits.
TEST(Overlap, APlanComputesBesideAGather) {
  Sharded s;
  Graph g = overlap(s.graph, {1, 1});
  Plan plan = make_plan(g, {});
  int32_t gather = gather_of(g, "layers.1"), product = first_product(g, "layers.0");
  auto position = [&](InstructionKind kind, int32_t node) {
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      if (plan.instructions[i].kind == kind && plan.instructions[i].node == node) return i;
    }
    return plan.instructions.size();
  };
  EXPECT_LT(position(InstructionKind::kLaunch, gather),
            position(InstructionKind::kLaunch, product));
  EXPECT_LT(position(InstructionKind::kLaunch, product), position(InstructionKind::kWait, gather));
  EXPECT_LT(position(InstructionKind::kWait, gather),
            position(InstructionKind::kLaunch, first_product(g, "layers.1")));
}

int most_reductions_under_way(const Graph& graph) {
  Plan plan = make_plan(graph, {});
  int under_way = 0, most = 0;
  for (const Instruction& i : plan.instructions) {
    if (i.node < 0 || graph.nodes()[static_cast<size_t>(i.node)].op->name() != "reduce_scatter")
      continue;
    under_way += i.kind == InstructionKind::kLaunch;
    under_way -= i.kind == InstructionKind::kWait;
    most = std::max(most, under_way);
  }
  EXPECT_EQ(under_way, 0);
  return most;
}

// Gradients that nobody reads are reduced beside the next layer's backward pass, one at a time.
TEST(Overlap, OneReductionIsUnderWay) {
  Sharded s;
  EXPECT_EQ(most_reductions_under_way(s.graph), 1);
}

// Nodes that compute, in order: neither exchanges and what prepares them nor sums of what they
// bring.
std::vector<std::string> computation(const Graph& g) {
  std::vector<std::string> nodes;
  for (const Node& n : g.nodes()) {
    if (n.op->contracts() || n.op->name().starts_with("rms_norm_backward"))
      nodes.push_back(cat(n.scope, " ", n.op->key()));
  }
  return nodes;
}

// A tied matrix is reduced twice, behind the head and behind the embedding. Their sum waits for the
// second, and computation waits for neither.
TEST(Overlap, ATiedParameterMovesNoComputation) {
  Sharded s(true, 4);
  Graph moved = overlap(s.graph, {1, 1});
  EXPECT_EQ(computation(moved), computation(s.graph));
  EXPECT_EQ(difference(ref::run(s.graph, s.feeds()), ref::run(moved, s.feeds())), "");
  Plan plan = make_plan(moved, {});
  verify_plan(moved, plan);
  EXPECT_LE(plan.live_peak_bytes, make_plan(s.graph, {}).live_peak_bytes * 11 / 10);
}

// The whole gradient of a tied matrix does not stay until the end: of two reductions the first is
// done when the next begins.
TEST(Overlap, OneReductionOfATiedParameterIsUnderWay) {
  Sharded s(true, 4);
  EXPECT_EQ(most_reductions_under_way(s.graph), 1);
  EXPECT_EQ(most_reductions_under_way(overlap(s.graph, {1, 1})), 1);
}

}  // namespace
}  // namespace tessera
