#include "passes/compute_weights.h"

#include <gtest/gtest.h>

#include "ir/verifier.h"
#include "ops/primitive/elementwise.h"
#include "passes/canonicalize.h"
#include "passes/precision.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

// Feeds of the slots that hold masters rounded, where `graph` reads those.
void add_compute_weights(ref::Feeds& feeds, const Graph& graph,
                         const std::vector<FlatUnit>& units) {
  for (const FlatUnit& unit : units) {
    if (!graph.find_input(compute_weight_slot(unit))) continue;
    Graph g;
    Value w = g.input("w", InputKind::kState, weight_type(unit, {}));
    g.output("rounded", convert(g, w, unit.compute_dtype));
    feeds[compute_weight_slot(unit)] = {
        ref::run(g, {{"w", feeds.at(weight_slot(unit))}}).outputs.at("rounded")[0].data};
  }
}

TEST(ComputeWeights, TakeThePlaceOfConversions) {
  for (DType compute : {DType::kBF16, DType::kF16}) {
    for (bool tied : {false, true}) {
      ModelGraph model = tiny_llama(tied);
      Graph used = precision(model.graph, compute);
      std::vector<FlatUnit> units = make_units(used, model.parameters);
      Graph before = with_gradients(flat_units(used, model.parameters, units), units);
      Graph after = canonicalize(read_compute_weights(before, units));
      verify(after, "compute_weights");
      for (const FlatUnit& unit : units) {
        EXPECT_FALSE(after.find_input(weight_slot(unit))) << unit.name;
        Value slot = after.find_input(compute_weight_slot(unit));
        ASSERT_TRUE(slot) << unit.name;
        EXPECT_EQ(after.type(slot), (TensorType{{unit.shard_size}, compute}));
      }
      ref::Feeds of_before = tiny_feeds(model, before, units), of_after = of_before;
      add_compute_weights(of_after, after, units);
      for (const FlatUnit& unit : units) of_after.erase(weight_slot(unit));
      EXPECT_EQ(difference(ref::run(before, of_before), ref::run(after, of_after)), "");
    }
  }
}

TEST(ComputeWeights, AreOfTrainedUnitsWithMastersOnly) {
  ModelGraph model = tiny_llama();
  for (Parameter& p : model.parameters) p.trainable = p.unit != "embed";
  Graph used = precision(model.graph, DType::kBF16);
  for (Masters masters : {Masters::kF32, Masters::kNone}) {
    std::vector<FlatUnit> units = make_units(used, model.parameters, {}, {}, masters);
    Graph after = read_compute_weights(flat_units(used, model.parameters, units), units);
    verify(after, "compute_weights");
    for (const FlatUnit& unit : units) {
      const bool kept = masters == Masters::kF32 && unit.name != "embed";
      EXPECT_EQ(keeps_compute_weights(unit), kept) << unit.name;
      EXPECT_EQ(static_cast<bool>(after.find_input(compute_weight_slot(unit))), kept) << unit.name;
    }
  }
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  Graph same = read_compute_weights(flat_units(model.graph, model.parameters, units), units);
  for (const FlatUnit& unit : units) EXPECT_TRUE(same.find_input(weight_slot(unit))) << unit.name;
}

}  // namespace
}  // namespace tessera
