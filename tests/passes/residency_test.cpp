#include "passes/residency.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodiff/backward.h"
#include "base/random.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "ops/collective/collective.h"
#include "ops/composite/linear.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "passes/canonicalize.h"
#include "passes/precision.h"
#include "plan/plan.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

ResidencyOptions recompute(CheckpointPolicy policy = CheckpointPolicy::kLayer, double share = 1) {
  ResidencyOptions options;
  options.share_numerator = share;
  options.policy = policy;
  return options;
}

// A model with its gradients, as the programs have it before the pass.
struct Trained {
  ModelGraph model;
  std::vector<FlatUnit> units;
  Graph graph;

  Trained(int64_t layers, DType compute, bool tied = false)
      : model(tiny_llama(tied, layers)), units(make_units(model.graph, model.parameters)) {
    Graph forward = compute == DType::kF32 ? model.graph : precision(model.graph, compute);
    graph = canonicalize(with_gradients(flat_units(forward, model.parameters, units), units));
  }
  Graph with(const ResidencyOptions& options) const {
    Graph after = residency(graph, options);
    verify(after, "residency");
    return after;
  }
  std::string changes(const Graph& after) const {
    return difference(ref::run(graph, tiny_feeds(model, graph, units)),
                      ref::run(after, tiny_feeds(model, after, units)));
  }
};

// Of all that is kept: none of it in the slots of the gradients, which have room for such a model.
int64_t peak(const Graph& graph) {
  Plan plan = make_plan(graph, {}, {.lodging = false});
  verify_plan(graph, plan);
  EXPECT_GE(plan.arena_bytes, plan.live_peak_bytes);
  return plan.arena_bytes;
}

int count(const Graph& graph, std::string_view op, Phase phase) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(),
                    [&](const Node& n) { return n.op->name() == op && n.phase == phase; }));
}

std::vector<ResidencyOptions> all_options() {
  std::vector<ResidencyOptions> all;
  for (auto [policy, share] : {std::pair{CheckpointPolicy::kLayer, 0.0},
                               {CheckpointPolicy::kLayer, 1.0},
                               {CheckpointPolicy::kLayer, 0.5},
                               {CheckpointPolicy::kOp, 1.0}}) {
    for (bool regather : {false, true}) {
      for (int64_t horizon : {-1, 0, 1}) {  // -1: no offload
        ResidencyOptions options = recompute(policy, share);
        options.regather = regather;
        options.offload = horizon >= 0;
        options.horizon = std::max<int64_t>(horizon, 0);
        all.push_back(options);
      }
    }
  }
  return all;
}

TEST(Residency, ChangesNoBit) {
  for (bool tied : {false, true}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      Trained trained(3, compute, tied);
      for (const ResidencyOptions& options : all_options()) {
        SCOPED_TRACE(cat(tied ? "tied " : "", name(compute), ", share ", options.share_numerator,
                         ", policy ", static_cast<int>(options.policy), ", regather ",
                         options.regather, ", offload ", options.offload, ", horizon ",
                         options.horizon));
        Graph after = trained.with(options);
        EXPECT_EQ(trained.changes(after), "");
        EXPECT_EQ(dead_nodes(after), 0);
        EXPECT_EQ(to_string(trained.with(options)), to_string(after));
        // In single precision there are no copies of parameters.
        bool nothing = !options.offload && options.share_numerator == 0 &&
                       (!options.regather || compute == DType::kF32);
        EXPECT_EQ(to_string(after) == to_string(trained.graph), nothing);
      }
    }
  }
}

TEST(Residency, ARecomputedLayerKeepsOnlyWhatEntersIt) {
  Trained trained(8, DType::kF32);
  Graph after = trained.with(recompute());
  std::vector<bool> behind(static_cast<size_t>(after.num_values()));  // read by backward nodes
  for (const Node& node : after.nodes()) {
    if (node.phase == Phase::kForward || node.op->tier() == Tier::kInput) continue;
    for (Value v : node.inputs) behind[static_cast<size_t>(v.id)] = true;
  }
  int kept = 0;
  for (const Node& node : after.nodes()) {
    if (node.phase != Phase::kForward || node.layer == kNoLayer) continue;
    for (Value v : node.outputs)
      kept += behind[static_cast<size_t>(v.id)] && node.op->name() != "unflatten" &&
              node.op->tier() != Tier::kInput;
  }
  EXPECT_EQ(kept, 8) << "the output of each layer";
  EXPECT_EQ(count(after, "attention", Phase::kRecompute), 8);
  EXPECT_EQ(count(after, "linear", Phase::kRecompute), 6 * 8) << "all but the last of a layer";
}

TEST(Residency, OneRecomputedLayerAtATimeIsLive) {
  Trained trained(8, DType::kF32);
  Graph after = trained.with(recompute());
  std::vector<int64_t> order;  // layers as nodes behind the forward pass come
  for (const Node& node : after.nodes()) {
    if (node.phase == Phase::kForward || node.op->tier() == Tier::kInput) continue;
    if (node.layer != kNoLayer) order.push_back(node.layer);
  }
  EXPECT_TRUE(std::is_sorted(order.rbegin(), order.rend()))
      << "clones of a layer come behind the backward pass of the next";
  int64_t keeping = peak(trained.graph), layer = peak(after);
  EXPECT_LT(layer, keeping / 2);
  // What another layer adds is its input.
  Trained deeper(9, DType::kF32);
  int64_t input = 2 * 7 * 24 * 4;
  EXPECT_LE(peak(deeper.with(recompute())) - layer, input + kBufferAlignment);
  EXPECT_GT(peak(deeper.graph) - keeping, 10 * input);
}

TEST(Residency, SharesOfLayersLieBetween) {
  Trained trained(8, DType::kF32);
  int64_t last = peak(trained.graph);
  for (double share : {0.25, 0.5, 0.75, 1.0}) {
    int64_t bytes = peak(trained.with(recompute(CheckpointPolicy::kLayer, share)));
    EXPECT_LT(bytes, last) << share;
    last = bytes;
  }
}

TEST(Residency, LayersAreChosenEvenly) {
  auto chosen = [](double numerator, double denominator, int64_t layers) {
    ResidencyOptions options;
    options.share_numerator = numerator;
    options.share_denominator = denominator;
    std::string text;
    for (int64_t l = 0; l < layers; ++l) text += is_recomputed(options, l) ? '1' : '0';
    return text;
  };
  EXPECT_EQ(chosen(0, 1, 6), "000000");
  EXPECT_EQ(chosen(1, 1, 6), "111111");
  EXPECT_EQ(chosen(1, 2, 6), "101010");
  EXPECT_EQ(chosen(1, 3, 6), "010010");
  EXPECT_EQ(chosen(2, 3, 6), "101101");
  EXPECT_EQ(chosen(0.25, 1, 8), "01000100");
  EXPECT_EQ(chosen(1, 3, 300).size() / 3,
            static_cast<size_t>(std::ranges::count(chosen(1, 3, 300), '1')));
}

TEST(Residency, TheOpPolicyKeepsProductsAndAttention) {
  Trained trained(8, DType::kF32);
  Graph after = trained.with(recompute(CheckpointPolicy::kOp));
  for (const Node& node : after.nodes())
    EXPECT_FALSE(node.phase == Phase::kRecompute && node.op->contracts()) << to_string(after, node);
  EXPECT_EQ(count(after, "swiglu", Phase::kRecompute), 8);
  EXPECT_EQ(count(after, "rms_norm", Phase::kRecompute), 2 * 8);
  EXPECT_EQ(count(after, "rope", Phase::kRecompute), 2 * 8);
  int64_t op = peak(after);
  EXPECT_LT(op, peak(trained.graph));
  EXPECT_GT(op, peak(trained.with(recompute())));
}

TEST(Residency, CopiesOfParametersAreMadeAgainOnceAUnit) {
  Trained trained(4, DType::kBF16);
  ResidencyOptions regather;
  regather.regather = true;
  Graph alone = trained.with(regather);
  EXPECT_EQ(count(alone, "convert", Phase::kRecompute), 4) << "head and embedding stay as they are";
  EXPECT_EQ(count_ops(alone, "convert") - count_ops(trained.graph, "convert"), 4);
  ResidencyOptions both = recompute();
  both.regather = true;
  Graph after = trained.with(both);
  EXPECT_EQ(count(after, "convert", Phase::kRecompute), 4) << "one for recomputation and gradients";
  EXPECT_LT(peak(after), peak(alone));
  // What is only converted is made again with its layer, whatever becomes of gathers.
  EXPECT_EQ(to_string(trained.with(recompute())), to_string(after));
  EXPECT_EQ(
      count(trained.with(recompute(CheckpointPolicy::kLayer, 0.5)), "convert", Phase::kRecompute),
      2);
}

// x + tanh(x w^T) in layers.0, with w2 in layers.1 and with w again in head; each matrix is
// gathered where it is used.
struct Gathered {
  Graph graph{Mesh({{"shard", 2}})};
  Gathered() {
    AxisSet shard = graph.mesh().axis("shard");
    auto input = [&](const std::string& name, InputKind kind, Shape shape) {
      return graph.input(name, kind, {std::move(shape), DType::kF32, shard});
    };
    Value x = input("x", InputKind::kArgument, {3, 4});
    Value w = input("w", InputKind::kState, {2, 4}), w2 = input("w2", InputKind::kState, {2, 4});
    x = convert(graph, x, DType::kBF16);
    auto layer = [&](Value weight) {
      Value full = all_gather(graph, convert(graph, weight, DType::kBF16), shard, 0);  // [4, 4]
      x = add(graph, x, unary(graph, UnaryKind::kTanh, linear(graph, x, full)));
    };
    for (int64_t number : {0, 1}) {
      LayerScope scope(graph, number);
      layer(number == 0 ? w : w2);
    }
    layer(w);
    Value loss = sum_over_marks(
        graph, reduce_sum(graph, convert(graph, mul(graph, x, x), DType::kF32), {0, 1}));
    std::vector<Value> gradients = backward(graph, loss, std::vector{w, w2});
    graph.output("loss", loss);
    graph.update("dw", gradients[0]);
    graph.update("dw2", gradients[1]);
  }
  std::string changes(const Graph& after) const {
    ref::Feeds feeds;
    for (const GraphInput& input : graph.inputs()) {
      for (uint64_t rank : {0, 1}) {
        std::vector<double> values;
        for (int64_t i = 0; i < graph.type(input.value).elements(); ++i)
          values.push_back(static_cast<float>(
              random_normal(rank, stream_of(input.name), static_cast<uint64_t>(i))));
        feeds[input.name].push_back(values);
      }
    }
    return difference(ref::run(graph, feeds), ref::run(after, feeds));
  }
};

TEST(Residency, GatheredCopiesStayWhereTheyAreNotToBeGatheredAgain) {
  Gathered gathered;
  Graph after = residency(gathered.graph, recompute());
  EXPECT_EQ(gathered.changes(after), "");
  EXPECT_EQ(count(after, "all_gather", Phase::kRecompute), 0);
  EXPECT_EQ(count(after, "convert", Phase::kRecompute), 0);
}

TEST(Residency, GathersOfAMatrixThatIsUsedTwiceAreApart) {
  Gathered gathered;
  for (double share : {0.0, 1.0}) {
    ResidencyOptions options = recompute(CheckpointPolicy::kLayer, share);
    options.regather = true;
    Graph after = residency(gathered.graph, options);
    verify(after, "residency");
    EXPECT_EQ(gathered.changes(after), "");
    EXPECT_EQ(count(after, "all_gather", Phase::kForward), 3);
    // The last of the forward pass is the first of the backward pass. Without recomputation the
    // first layer's matrix is needed for the gradient of x only, which nobody wants.
    EXPECT_EQ(count(after, "all_gather", Phase::kRecompute), share > 0 ? 2 : 1);
    EXPECT_EQ(count(after, "reduce_scatter", Phase::kBackward), 3);
  }
}

// Layers by the nodes of an op, in order.
std::vector<int64_t> layers_of(const Graph& graph, std::string_view op) {
  std::vector<int64_t> layers;
  for (const Node& node : graph.nodes())
    if (node.op->name() == op) layers.push_back(node.layer);
  return layers;
}

TEST(Residency, LayerInputsAreOffloadedAndFetchedAhead) {
  Trained trained(6, DType::kF32);
  for (int64_t horizon : {0, 1, 2, 5, 6}) {
    SCOPED_TRACE(horizon);
    ResidencyOptions options = recompute();
    options.offload = true;
    options.horizon = horizon;
    Graph after = trained.with(options);
    // The input of layer l is made in layer l - 1; -1: the embedding.
    std::vector<int64_t> offloaded, fetched;
    for (int64_t l = 0; l + horizon < 6; ++l) offloaded.push_back(l - 1);
    fetched.assign(offloaded.rbegin(), offloaded.rend());
    EXPECT_EQ(layers_of(after, "offload"), offloaded);
    EXPECT_EQ(layers_of(after, "fetch"), fetched);
    // Each fetch comes right before what layer (made in) + 1 + horizon does first.
    std::optional<int64_t> waiting;
    for (const Node& node : after.nodes()) {
      if (node.op->name() == "fetch") {
        waiting = node.layer + 1 + horizon;
      } else if (waiting) {
        EXPECT_EQ(node.layer, waiting);
        waiting.reset();
      }
    }
  }
}

TEST(Residency, WithoutRecomputationAllThatLayersSaveIsOffloaded) {
  Trained trained(6, DType::kF32);
  ResidencyOptions options;
  options.offload = true;
  options.horizon = 1;
  Graph after = trained.with(options);
  // Two norms' inputs and statistics, four operands of products, q, k, v, o, lse, gate and up,
  // where the first is made outside of the layer.
  EXPECT_GT(count_ops(after, "offload"), 10 * 5);
  EXPECT_EQ(count_ops(after, "offload"), count_ops(after, "fetch"));
  EXPECT_EQ(trained.changes(after), "");
}

// A graph of random ops in four layers over vectors, with gradients.
Graph random_graph(uint64_t seed) {
  Graph g;
  uint64_t draws = 0;
  auto draw = [&](size_t bound) {
    return static_cast<size_t>(random_below(seed, 1, draws++, bound));
  };
  std::vector<Value> states, values;
  for (int i = 0; i < 3; ++i) {
    states.push_back(g.input(cat("s", i), InputKind::kState, {{12}, DType::kF32}));
    values.push_back(states.back());
  }
  values.push_back(g.input("x", InputKind::kArgument, {{12}, DType::kF32}));
  size_t nodes = 8 + draw(24);
  for (size_t i = 0; i < nodes; ++i) {
    int32_t layer = draw(6) == 0 ? kNoLayer : static_cast<int32_t>(i * 4 / nodes);
    g.set_scope(layer == kNoLayer ? "between" : cat("layers.", layer, ".part"), layer);
    Value a = values[draw(values.size())], b = values[values.size() - 1 - draw(3)];
    switch (draw(6)) {
      case 0: values.push_back(unary(g, UnaryKind::kTanh, a)); break;
      case 1: values.push_back(unary(g, UnaryKind::kLogistic, b)); break;
      case 2: values.push_back(add(g, a, b)); break;
      case 3: values.push_back(mul(g, a, b)); break;
      case 4: {
        Value folded = unary(g, UnaryKind::kTanh, reshape(g, a, {3, 4}));
        values.push_back(reshape(g, draw(2) ? folded : reshape(g, a, {4, 3}), {12}));
        break;
      }
      case 5: values.push_back(convert(g, convert(g, b, DType::kBF16), DType::kF32)); break;
    }
  }
  g.set_scope("end");
  Value sum = add(g, values.back(), values[draw(values.size())]);
  for (Value s : states) sum = add(g, sum, s);
  Value loss = reduce_sum(g, mul(g, sum, sum), {0});
  g.output("loss", loss);
  g.output("value", values[draw(values.size())]);
  std::vector<Value> gradients = backward(g, loss, states);
  for (size_t i = 0; i < states.size(); ++i) g.update(cat("g", i), gradients[i]);
  return g;
}

TEST(Residency, RandomChoicesOverRandomGraphsChangeNoBit) {
  ref::Feeds feeds;
  for (const char* name : {"s0", "s1", "s2", "x"}) {
    std::vector<double> values;
    for (uint64_t i = 0; i < 12; ++i)
      values.push_back(static_cast<float>(random_normal(5, stream_of(name), i)));
    feeds[name] = {values};
  }
  size_t clones = 0, fetches = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Graph g = random_graph(seed);
    std::vector<Residency> choice;
    for (uint64_t i = 0; i < g.nodes().size(); ++i)
      choice.push_back(static_cast<Residency>(random_below(seed, 2, i, 3)));
    for (int64_t horizon : {0, 1}) {
      Graph after = apply_residency(g, choice, horizon);
      verify(after, "residency");
      ASSERT_EQ(difference(ref::run(g, feeds), ref::run(after, feeds)), "")
          << to_string(g) << "became\n"
          << to_string(after);
      verify_plan(after, make_plan(after, {}));
      fetches += static_cast<size_t>(count_ops(after, "fetch"));
      for (const Node& node : after.nodes()) clones += node.phase == Phase::kRecompute;
    }
  }
  EXPECT_GT(clones, 1000u);
  EXPECT_GT(fetches, 300u);
}

}  // namespace
}  // namespace tessera
