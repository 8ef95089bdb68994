#include "passes/precision.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/verifier.h"
#include "ops/primitive/elementwise.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

TEST(Precision, DeclaresParametersInTheDtypeOfComputeAndKeepsStatisticsInF32) {
  ModelGraph model = tiny_llama();
  Graph g = precision(model.graph, DType::kBF16);
  verify(g, "precision");
  auto type_of = [&](Value v) { return g.type(v).dtype; };
  std::map<std::string, int> seen;
  for (const Node& node : g.nodes()) {
    std::string op(node.op->name());
    ++seen[op];
    if (op == "input") continue;
    if (op == "linear" || op == "embedding" || op == "rope" || op == "swiglu" || op == "add" ||
        op == "reshape") {
      bool targets = op == "reshape" && type_of(node.outputs[0]) == DType::kI32;
      EXPECT_TRUE(targets || type_of(node.outputs[0]) == DType::kBF16)
          << op << " in " << node.scope;
    } else if (op == "rms_norm" || op == "attention") {
      EXPECT_EQ(type_of(node.outputs[0]), DType::kBF16) << op;
      EXPECT_EQ(type_of(node.outputs[1]), DType::kF32) << "the statistics of " << op;
    } else if (op == "linear_cross_entropy") {
      EXPECT_EQ(type_of(node.outputs[0]), DType::kF32) << "the loss";
    }
  }
  EXPECT_EQ(seen["convert"], 0);
  EXPECT_EQ(seen["linear"], 14);
  for (const Parameter& p : model.parameters)
    EXPECT_EQ(type_of(g.input_value(p.name)), DType::kBF16) << p.name;
  EXPECT_EQ(type_of(g.outputs()[0].value), DType::kF32);
  EXPECT_EQ(type_of(g.outputs()[1].value), DType::kI64);
  for (const FlatUnit& unit : make_units(g, model.parameters))
    EXPECT_EQ(unit.dtype, DType::kF32) << "the masters of " << unit.name;
}

TEST(Precision, KeepsTheDtypeOfOutputs) {
  ModelGraph model;
  Value w = ParameterScope(model, "", "u").norm_weight("w", 4);
  model.graph.output("y", unary(model.graph, UnaryKind::kNeg, w));
  Graph g = precision(model.graph, DType::kBF16);
  verify(g, "precision");
  EXPECT_EQ(g.type(g.outputs()[0].value).dtype, DType::kF32);
  EXPECT_EQ(ref::run(g, {{"w.weight", {{1, 1.001, 2, 3}}}}).outputs.at("y")[0].data,
            (std::vector<double>{-1, -1, -2, -3}));
}

TEST(Precision, ChangesTheLossByRoundingOnly) {
  ModelGraph model = tiny_llama();
  ref::Feeds feeds = tiny_feeds(model, model.graph, {});
  double exact = ref::run(model.graph, feeds).outputs.at("loss_sum")[0].data[0];
  auto rounded = ref::run(precision(model.graph, DType::kBF16), feeds);
  EXPECT_NE(rounded.outputs.at("loss_sum")[0].data[0], exact);
  EXPECT_NEAR(rounded.outputs.at("loss_sum")[0].data[0], exact, 0.02 * exact);
  EXPECT_EQ(rounded.outputs.at("token_count")[0].data[0], 13);
}

TEST(Precision, GivesGradientsOfParametersInF32) {
  ModelGraph model = tiny_llama(true);
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  Graph g = with_gradients(
      flat_units(precision(model.graph, DType::kBF16), model.parameters, units), units);
  verify(g, "gradients");
  for (const StateUpdate& update : g.updates())
    EXPECT_EQ(g.type(update.value).dtype, DType::kF32) << update.slot;
  for (const Node& node : g.nodes()) {
    bool dx = node.op->name().starts_with("linear_dx"),
         dw = node.op->name().starts_with("linear_dw");
    if (!dx && !dw) continue;
    EXPECT_EQ(g.type(node.outputs[0]).dtype, dx ? DType::kBF16 : DType::kF32) << node.scope;
  }
}

}  // namespace
}  // namespace tessera
