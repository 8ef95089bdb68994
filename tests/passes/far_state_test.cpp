#include "passes/far_state.h"

#include <gtest/gtest.h>

#include "ir/printer.h"
#include "ir/verifier.h"
#include "ops/primitive/elementwise.h"
#include "passes/residency.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

bool is_weight_or_gradient(const std::string& slot) {
  return slot.starts_with("weight.") || slot.starts_with("gradient.");
}

// Who reads far slots, and who makes their new content.
void expect_transfers(const Graph& g) {
  for (const Node& node : g.nodes()) {
    for (Value v : node.inputs) {
      const Node& maker = g.nodes()[static_cast<size_t>(g.producer(v))];
      if (maker.op->tier() != Tier::kInput) continue;
      for (const GraphInput& input : g.inputs()) {
        bool far_slot = input.value == v && is_weight_or_gradient(input.name);
        EXPECT_TRUE(!far_slot || node.op->name() == "fetch") << to_string(g, node);
      }
    }
  }
  for (const StateUpdate& update : g.updates()) {
    const Node& maker = g.nodes()[static_cast<size_t>(g.producer(update.value))];
    EXPECT_EQ(maker.op->name() == "offload", is_weight_or_gradient(update.slot)) << update.slot;
  }
}

TEST(FarState, IsFetchedBeforeUseAndOffloadedWhenMade) {
  for (bool tied : {false, true}) {
    ModelGraph model = tiny_llama(tied);
    std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
    Graph before = with_gradients(flat_units(model.graph, model.parameters, units), units);
    Graph after = far_state(before, is_weight_or_gradient);
    verify(after, "far_state");
    expect_transfers(after);
    EXPECT_EQ(count_ops(after, "fetch"), 4);
    EXPECT_EQ(count_ops(after, "offload"), 4);
    EXPECT_EQ(difference(ref::run(before, tiny_feeds(model, before, units)),
                         ref::run(after, tiny_feeds(model, after, units))),
              "");
  }
}

// Where copies of parameters are made again they are fetched again.
TEST(FarState, ComposesWithTheSecondGather) {
  ModelGraph model = tiny_llama(false, 4);
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  Graph before = with_gradients(flat_units(model.graph, model.parameters, units), units);
  ResidencyOptions options;
  options.regather = true;
  Graph after = residency(far_state(before, is_weight_or_gradient), options);
  verify(after, "residency");
  expect_transfers(after);
  EXPECT_EQ(count_ops(after, "fetch"), 6 + 4) << "each layer's once more";
  EXPECT_EQ(difference(ref::run(before, tiny_feeds(model, before, units)),
                       ref::run(after, tiny_feeds(model, after, units))),
            "");
}

TEST(FarState, LeavesOtherSlotsAndOutputs) {
  Graph g;
  Value near = g.input("counter", InputKind::kState, {{4}, DType::kF32});
  Value far = g.input("weight.u", InputKind::kState, {{4}, DType::kF32});
  Value sum = add(g, near, mul(g, far, far));
  g.update("counter", sum);
  g.update("gradient.u", sum);
  g.output("y", sum);
  Graph after = far_state(g, is_weight_or_gradient);
  verify(after, "far_state");
  expect_transfers(after);
  EXPECT_EQ(count_ops(after, "fetch"), 1) << "one for both operands";
  ref::Feeds feeds{{"counter", {{1, 2, 3, 4}}}, {"weight.u", {{0.5, -1, 2, 8}}}};
  EXPECT_EQ(difference(ref::run(g, feeds), ref::run(after, feeds)), "");
}

}  // namespace
}  // namespace tessera
