#include "passes/flat_units.h"

#include <gtest/gtest.h>

#include <set>

#include "ir/verifier.h"
#include "ops/primitive/elementwise.h"
#include "passes/precision.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

TEST(Units, HoldEveryParameterOnceAligned) {
  for (bool tied : {false, true}) {
    ModelGraph model = tiny_llama(tied);
    std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
    std::set<int32_t> seen;
    for (const FlatUnit& unit : units) {
      int64_t end = 0;
      ASSERT_EQ(unit.parameters.size(), unit.members.size());
      for (size_t k = 0; k < unit.members.size(); ++k) {
        const Parameter& p = model.parameters[static_cast<size_t>(unit.parameters[k])];
        EXPECT_TRUE(seen.insert(unit.parameters[k]).second) << p.name;
        EXPECT_EQ(p.unit, unit.name);
        EXPECT_EQ(unit.members[k].shape, p.shape);
        EXPECT_EQ(unit.members[k].offset % kUnitAlignment, 0);
        EXPECT_GE(unit.members[k].offset, end);
        EXPECT_LT(unit.members[k].offset - end, kUnitAlignment);
        end = unit.members[k].offset + num_elements(p.shape);
      }
      EXPECT_EQ(unit.size % kUnitGranule, 0);
      EXPECT_GE(unit.size, end);
      EXPECT_LT(unit.size - end, kUnitGranule + kUnitAlignment);
    }
    EXPECT_EQ(seen.size(), model.parameters.size());
  }
}

std::map<std::string, std::vector<std::string>> names_by_unit(const ModelGraph& model) {
  std::map<std::string, std::vector<std::string>> names;
  for (const FlatUnit& unit : make_units(model.graph, model.parameters)) {
    for (int32_t p : unit.parameters)
      names[unit.name].push_back(model.parameters[static_cast<size_t>(p)].name);
  }
  return names;
}

TEST(Units, AreEmbeddingBlocksAndHead) {
  auto units = names_by_unit(tiny_llama(false));
  EXPECT_EQ(units.size(), 4u);
  EXPECT_EQ(units["embed"], (std::vector<std::string>{"model.embed_tokens.weight"}));
  EXPECT_EQ(units["head"], (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
  EXPECT_EQ(units["layers.0"].size(), 9u);
  EXPECT_EQ(units["layers.1"].size(), 9u);
}

TEST(Units, ATiedMatrixIsAUnitOfItsOwn) {
  auto units = names_by_unit(tiny_llama(true));
  EXPECT_EQ(units["embed"], (std::vector<std::string>{"model.embed_tokens.weight"}));
  EXPECT_EQ(units["head"], (std::vector<std::string>{"model.norm.weight"}));
}

TEST(Units, KeepMastersOfAllOfWhatIsTrainedOrOfNothing) {
  ModelGraph model = tiny_llama(false);
  for (Parameter& p : model.parameters) p.trainable = p.unit == "layers.1";
  Graph graph = precision(model.graph, DType::kBF16);
  for (auto [masters, trained, frozen] : {std::tuple{Masters::kF32, DType::kF32, DType::kF32},
                                          {Masters::kTrained, DType::kF32, DType::kBF16},
                                          {Masters::kNone, DType::kBF16, DType::kBF16}}) {
    for (const FlatUnit& unit : make_units(graph, model.parameters, {}, {}, masters))
      EXPECT_EQ(unit.dtype, unit.trainable ? trained : frozen) << unit.name;
  }
}

TEST(Units, FrozenParametersOfALayerAreAUnitOfTheirOwn) {
  ModelGraph model = tiny_llama(false);
  for (Parameter& p : model.parameters)
    p.trainable = p.unit != "embed" && p.name.find("mlp") == std::string::npos;
  auto names = names_by_unit(model);
  EXPECT_EQ(names.size(), 6u);
  EXPECT_EQ(names["layers.0"].size(), 6u);
  EXPECT_EQ(names["layers.0/1"], (std::vector<std::string>{"model.layers.0.mlp.gate_proj.weight",
                                                           "model.layers.0.mlp.up_proj.weight",
                                                           "model.layers.0.mlp.down_proj.weight"}));
  for (const FlatUnit& unit : make_units(model.graph, model.parameters))
    EXPECT_EQ(unit.trainable, unit.name != "embed" && !unit.name.ends_with("/1")) << unit.name;
}

TEST(FlatUnits, ChangesNoBit) {
  for (bool tied : {false, true}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(cat(tied ? "tied " : "", name(compute)));
      ModelGraph model = tiny_llama(tied);
      std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
      Graph before = compute == DType::kF32 ? model.graph : precision(model.graph, compute);
      Graph after = flat_units(before, model.parameters, units);
      verify(after, "flat_units");
      EXPECT_EQ(difference(ref::run(before, tiny_feeds(model, before, {})),
                           ref::run(after, tiny_feeds(model, after, units))),
                "");
    }
  }
}

TEST(FlatUnits, DeclaresOneSlotAndOneConversionAUnit) {
  ModelGraph model = tiny_llama();
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  Graph g = flat_units(precision(model.graph, DType::kBF16), model.parameters, units);
  EXPECT_EQ(count_ops(g, "convert"), 4);
  EXPECT_EQ(count_ops(g, "unflatten"), 4);
  for (const FlatUnit& unit : units) {
    EXPECT_EQ(g.type(g.input_value(weight_slot(unit))), (TensorType{{unit.size}, DType::kF32}));
  }
  int states = 0;
  for (const GraphInput& input : g.inputs()) {
    EXPECT_NE(input.kind, InputKind::kParameter) << input.name;
    states += input.kind == InputKind::kState;
  }
  EXPECT_EQ(states, 4);
  EXPECT_EQ(dead_nodes(g), 0);
}

// Parameters a and b of one unit, used as given by the test.
struct SmallModel {
  ModelGraph model;
  Value a, b;
  SmallModel() {
    ParameterScope scope(model, "", "u");
    a = scope.norm_weight("a", 5);
    b = scope.norm_weight("b", 5);
  }
  // Results of the graph with parameters and of the one with the unit.
  std::string changes() const {
    std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
    Graph after = flat_units(model.graph, model.parameters, units);
    verify(after, "flat_units");
    const std::vector<double> values[] = {{1.1, 2, 3, 4, 5}, {6, 7, 8.3, 9, 10}};
    ref::Feeds feeds;
    for (const FlatUnit& unit : units) {
      std::vector<double> flat(1024);
      for (size_t k = 0; k < unit.members.size(); ++k)
        std::ranges::copy(values[unit.parameters[k]], flat.begin() + unit.members[k].offset);
      feeds[weight_slot(unit)] = {flat};
    }
    return difference(ref::run(model.graph, {{"a.weight", {values[0]}}, {"b.weight", {values[1]}}}),
                      ref::run(after, feeds));
  }
};

TEST(FlatUnits, LeavesTheConversionsOfAModelAlone) {
  SmallModel small;
  Graph& g = small.model.graph;
  Value low = convert(g, small.a, DType::kBF16);
  g.output("y", add(g, low, convert(g, small.b, DType::kBF16)));
  std::vector<FlatUnit> units = make_units(g, small.model.parameters);
  Graph after = flat_units(g, small.model.parameters, units);
  EXPECT_EQ(units.size(), 1u);
  for (const Node& node : after.nodes()) {
    if (node.op->name() != "unflatten") continue;
    EXPECT_EQ(after.type(node.inputs[0]).dtype, DType::kF32);
  }
  EXPECT_EQ(small.changes(), "");

  g.output("z", unary(g, UnaryKind::kNeg, small.a));
  EXPECT_EQ(small.changes(), "");

  SmallModel two_dtypes;
  Graph& h = two_dtypes.model.graph;
  h.output("y", convert(h, two_dtypes.a, DType::kBF16));
  h.output("z", convert(h, two_dtypes.b, DType::kF64));
  EXPECT_EQ(two_dtypes.changes(), "");
}

// The dtype on the wire is that in which the graph declares a parameter.
TEST(FlatUnits, ParametersOfTwoDtypesAreUnitsOfTheirOwn) {
  ModelGraph model;
  Graph& g = model.graph;
  for (auto [name, dtype] : {std::pair{"a", DType::kBF16}, {"b", DType::kF32}}) {
    g.output(cat("y.", name), g.input(name, InputKind::kParameter, {{5}, dtype}));
    model.parameters.push_back({.name = name, .shape = {5}, .unit = "u"});
  }
  for (Masters masters : {Masters::kF32, Masters::kNone}) {
    std::vector<FlatUnit> units = make_units(g, model.parameters, {}, {}, masters);
    ASSERT_EQ(units.size(), 2u);
    EXPECT_EQ(units[0].dtype, masters == Masters::kF32 ? DType::kF32 : DType::kBF16);
    EXPECT_EQ(units[1].dtype, DType::kF32);
    Graph after = flat_units(g, model.parameters, units);
    verify(after, "flat_units");
    EXPECT_EQ(count_ops(after, "convert"), masters == Masters::kF32 ? 1 : 0);
    EXPECT_EQ(after.type(after.outputs()[0].value).dtype, DType::kBF16);
    EXPECT_EQ(after.type(after.outputs()[1].value).dtype, DType::kF32);
  }
}

TEST(FlatUnits, KeepsAParameterThatIsAnOutput) {
  SmallModel small;
  Graph& g = small.model.graph;
  g.output("y", add(g, convert(g, small.a, DType::kBF16), convert(g, small.b, DType::kBF16)));
  g.output("a", small.a);
  EXPECT_EQ(small.changes(), "");
}

TEST(FlatUnits, TakesAParameterThatNobodyReads) {
  SmallModel small;
  Graph& g = small.model.graph;
  g.output("y", convert(g, small.b, DType::kBF16));
  EXPECT_EQ(small.changes(), "");
}

// Two ranks along "shard" and two along "replicate".
Graph sharded(const ModelGraph& model, std::vector<FlatUnit>& units, ShardAxes& axes) {
  Mesh mesh({{"replicate", 2}, {"shard", 2}});
  axes = {mesh.axis("shard"), mesh.axis("replicate")};
  std::vector<ParameterPart> parts = parameter_parts(model.parameters, mesh, {});
  Graph split = tensor_parallel(precision(model.graph, DType::kBF16), model.parameters, parts, mesh,
                                {}, false);
  units = make_units(split, model.parameters, parts, axes);
  Graph g = flat_units(split, model.parameters, units, axes);
  verify(g, "flat_units");
  return g;
}

TEST(FlatUnits, GathersWhatTravelsInTheDtypeOfCompute) {
  std::vector<FlatUnit> units;
  ShardAxes axes;
  Graph g = sharded(tiny_llama(false), units, axes);
  EXPECT_EQ(count_ops(g, "all_gather"), 4);
  for (const FlatUnit& unit : units) {
    EXPECT_EQ(unit.shard_size % kUnitGranule, 0);
    EXPECT_EQ(unit.size, 2 * unit.shard_size);
    Value state = g.input_value(weight_slot(unit));
    EXPECT_EQ(g.type(state), (TensorType{{unit.shard_size}, DType::kF32, axes.shard}));
  }
  for (const FlatUnit& unit : units)
    EXPECT_EQ(g.type(unit.shard).varying, axes.shard | axes.replicate);
  for (const Node& node : g.nodes()) {
    if (node.op->name() != "all_gather") continue;
    EXPECT_EQ(g.type(node.inputs[0]).dtype, DType::kBF16);
  }
}

TEST(FlatUnits, FrozenUnitsAreShardedAndGatheredLikeTheOthers) {
  ModelGraph model = tiny_llama(false);
  for (Parameter& p : model.parameters) p.trainable = p.name.find("self_attn") == std::string::npos;
  std::vector<FlatUnit> units;
  ShardAxes axes;
  Graph g = sharded(model, units, axes);
  EXPECT_EQ(units.size(), 6u);
  EXPECT_EQ(count_ops(g, "all_gather"), 6);
  for (const FlatUnit& unit : units) {
    EXPECT_EQ(unit.trainable, unit.name.find('/') == std::string::npos) << unit.name;
    EXPECT_EQ(g.type(g.input_value(weight_slot(unit))),
              (TensorType{{unit.shard_size}, DType::kF32, axes.shard}));
    EXPECT_EQ(unit.size, 2 * unit.shard_size);
  }
  for (const Node& node : g.nodes()) {
    if (node.op->name() != "all_gather") continue;
    EXPECT_EQ(g.type(node.inputs[0]).dtype, DType::kBF16);
  }
}

TEST(FlatUnits, ATiedMatrixIsGatheredAtEachUse) {
  std::vector<FlatUnit> units;
  ShardAxes axes;
  Graph g = sharded(tiny_llama(true), units, axes);
  EXPECT_EQ(units.size(), 4u);
  EXPECT_EQ(count_ops(g, "all_gather"), 5);
  EXPECT_EQ(count_ops(g, "vary"), 4);  // one a unit, at its shard
}

}  // namespace
}  // namespace tessera
