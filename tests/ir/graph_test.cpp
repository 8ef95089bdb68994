#include "ir/graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/marks.h"
#include "ir/printer.h"
#include "ir/rewriter.h"
#include "ir/state_alone.h"
#include "ir/verifier.h"
#include "ops/composite/attention.h"
#include "ops/composite/linear.h"
#include "ops/composite/rms_norm.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

Value argument(Graph& g, const std::string& name, Shape shape, AxisSet varying = {},
               DType dtype = DType::kF32) {
  return g.input(name, InputKind::kArgument, {std::move(shape), dtype, varying});
}

int count_ops(const Graph& g, std::string_view op) {
  int count = 0;
  for (const Node& node : g.nodes()) count += node.op->name() == op;
  return count;
}

TEST(Graph, ErrorsNameOpConstraintAndScope) {
  Graph g;
  Value x = argument(g, "x", {2, 8}), w = argument(g, "w", {7});
  EXPECT_EQ(user_error([&] {
              Scope layer(g, "layers.3");
              Scope norm(g, "attn_norm");
              rms_norm(g, x, w, 1e-5);
            }),
            "[rms_norm] (C2) w must have shape [D]: D = 8, w is [7] (layers.3.attn_norm)");
  EXPECT_EQ(g.scope(), "");
  EXPECT_EQ(user_error([&] { rms_norm(g, x, w, 1e-5); }),
            "[rms_norm] (C2) w must have shape [D]: D = 8, w is [7]");
  EXPECT_EQ(g.nodes().size(), 2u) << "a refused node leaves nothing behind";
  EXPECT_EQ(g.num_values(), 2);
}

TEST(Graph, NodesCarryScopeAndPhase) {
  Graph g;
  Value x = argument(g, "x", {4});
  g.set_phase(Phase::kBackward);
  {
    Scope outer(g, "layers.0");
    Scope inner(g, "mlp");
    unary(g, UnaryKind::kNeg, x);
  }
  EXPECT_EQ(g.nodes().back().scope, "layers.0.mlp");
  EXPECT_EQ(g.nodes().back().phase, Phase::kBackward);
  EXPECT_EQ(g.producer(g.nodes().back().outputs[0]), 1);
}

TEST(Graph, NodesKnowTheirLayerByNumber) {
  Graph g;
  Value x = argument(g, "x", {4});
  {
    LayerScope layer(g, 12);
    Scope inner(g, "mlp");
    x = unary(g, UnaryKind::kNeg, x);
  }
  x = unary(g, UnaryKind::kNeg, x);
  {
    Scope other(g, "layers.3");  // a name alone is for people
    g.output("y", unary(g, UnaryKind::kNeg, x));
  }
  Graph copied;
  Rewriter rewriter(g, copied);
  for (const Node& node : g.nodes()) rewriter.copy(node);
  rewriter.finish();
  for (const Graph* graph : {&g, &copied}) {
    EXPECT_EQ(graph->nodes()[1].scope, "layers.12.mlp");
    EXPECT_EQ(graph->nodes()[1].layer, 12);
    EXPECT_EQ(graph->nodes()[2].layer, kNoLayer);
    EXPECT_EQ(graph->nodes()[3].layer, kNoLayer);
    EXPECT_EQ(graph->layer(), kNoLayer);
  }
}

TEST(Graph, WhatIsMadeOfStateAlone) {
  Graph g;
  Value w = g.input("w", InputKind::kState, {{4, 4}, DType::kF32}), x = argument(g, "x", {4, 4});
  Value copy = convert(g, w, DType::kBF16), turned = transpose(g, copy, {1, 0});
  Value sum = add(g, w, x), one = constant(g, g.type(w), 1), shifted = add(g, w, one);
  Value product = linear(g, w, w), behind = unary(g, UnaryKind::kNeg, product);
  std::vector<bool> alone = made_of_state_alone(g);
  for (Value v : {w, copy, turned}) EXPECT_TRUE(alone[static_cast<size_t>(v.id)]) << v.id;
  for (Value v : {x, sum, one, shifted, product, behind})
    EXPECT_FALSE(alone[static_cast<size_t>(v.id)]) << v.id;
}

TEST(Graph, RefusesWrongUse) {
  Graph g;
  Value x = argument(g, "x", {4});
  EXPECT_THROW(argument(g, "x", {4}), InternalError);
  EXPECT_THROW(g.input_value("y"), InternalError);
  EXPECT_FALSE(g.find_input("y"));
  EXPECT_THROW(add(g, x, Value{}), InternalError);
  EXPECT_THROW(add(g, x, Value{99}), InternalError);
  Value w = argument(g, "w", {4});
  EXPECT_THROW(g.add_one(std::make_shared<RmsNorm>(1e-5), {x, w}), InternalError) << "two outputs";
}

TEST(Graph, RefusesAWrongNumberOfOperands) {
  Graph g;
  Value x = argument(g, "x", {4});
  Scope layer(g, "layers.3");
  auto norm = std::make_shared<RmsNorm>(1e-5);
  std::string too_few = message_of<InternalError>([&] { g.add(norm, {x}); });
  expect_contains(too_few, "rms_norm takes 2 operands, got 1 (layers.3)");
  std::string too_many = message_of<InternalError>([&] { g.add(norm, {x, x, x}); });
  expect_contains(too_many, "rms_norm takes 2 operands, got 3 (layers.3)");
  EXPECT_EQ(g.nodes().size(), 1u);
}

TEST(Marks, VaryIsInsertedOnceAValue) {
  Graph g(Mesh({{"data", 2}, {"tp", 2}}));
  AxisSet data = g.mesh().axis("data"), tp = g.mesh().axis("tp");
  Value x = argument(g, "x", {4}, data), y = argument(g, "y", {4}, data), w = argument(g, "w", {4});
  Value a = mul(g, x, w), b = mul(g, w, y);
  EXPECT_EQ(g.type(a).varying, data);
  EXPECT_EQ(count_ops(g, "vary"), 1);
  EXPECT_EQ(g.nodes()[static_cast<size_t>(g.producer(a))].inputs[1],
            g.nodes()[static_cast<size_t>(g.producer(b))].inputs[0]);

  Value t = argument(g, "t", {4}, tp);
  Value c = mul(g, t, w);  // other axes: a vary of its own
  EXPECT_EQ(g.type(c).varying, tp);
  EXPECT_EQ(count_ops(g, "vary"), 2);
  Value d = mul(g, a, c);  // both sides lack an axis
  EXPECT_EQ(g.type(d).varying, data | tp);
  EXPECT_EQ(count_ops(g, "vary"), 4);
  verify(g, "test");
}

TEST(Marks, VaryIsInsertedOnceAlsoInACopyOfTheGraph) {
  Graph g(Mesh({{"data", 2}}));
  AxisSet data = g.mesh().axis("data");
  Value x = argument(g, "x", {4}, data), w = argument(g, "w", {4});
  mul(g, x, w);
  Graph copy(g.mesh());
  Rewriter rewriter(g, copy);
  for (const Node& node : g.nodes()) rewriter.copy(node);
  add(copy, rewriter(x), rewriter(w));
  EXPECT_EQ(count_ops(copy, "vary"), 1);
}

TEST(Marks, IntegersVaryWithoutANode) {
  Graph g(Mesh({{"data", 2}}));
  Value table = argument(g, "table", {5, 4}, g.mesh().axis("data"));
  Value ids = argument(g, "ids", {3}, {}, DType::kI32);
  Value y = g.add_one(std::make_shared<Gather>(), {table, ids});
  EXPECT_EQ(count_ops(g, "vary"), 0);
  EXPECT_EQ(g.type(y).varying, g.mesh().axis("data"));
}

TEST(Marks, ReducingAReplicatedValueIsATypeError) {
  Graph g(Mesh({{"data", 2}, {"tp", 2}}));
  AxisSet data = g.mesh().axis("data"), tp = g.mesh().axis("tp");
  Value x = argument(g, "x", {4}, data);
  auto sum_over = [&](AxisSet axes) {
    return g.add_one(std::make_shared<AllReduceOp>(axes, Reduction::kSum), {x});
  };
  Scope scope(g, "head");
  EXPECT_EQ(user_error([&] { sum_over(tp); }),
            "[all_reduce] (C1) the operand must vary over {tp} (reducing a replicated value would "
            "count it once a rank): it "
            "is f32[4]{data} (head)");
  EXPECT_THROW(sum_over(data | tp), UserError);
  EXPECT_TRUE(g.type(sum_over(data)).varying.empty());
  EXPECT_THROW(g.add_one(std::make_shared<VaryOp>(data), {x}), UserError);
}

TEST(Marks, AsReplicatedIsAViewOfAVaryingValue) {
  Graph g(Mesh({{"data", 2}, {"tp", 2}}));
  AxisSet data = g.mesh().axis("data"), tp = g.mesh().axis("tp");
  Value x = argument(g, "x", {4}, data);
  Value same = g.add_one(std::make_shared<AsReplicatedOp>(data), {x});
  EXPECT_TRUE(g.type(same).varying.empty());
  EXPECT_EQ(user_error([&] { g.add_one(std::make_shared<AsReplicatedOp>(tp), {x}); }),
            "[as_replicated] (C1) the operand must vary over {tp}: it is f32[4]{data}");
}

TEST(Marks, SumOverMarksTakesExactlyTheVaryingAxes) {
  Graph g(Mesh({{"data", 2}, {"tp", 2}}));
  Value x = argument(g, "x", {}, g.mesh().axis("tp")), r = argument(g, "r", {});
  EXPECT_EQ(sum_over_marks(g, r), r);
  Value sum = sum_over_marks(g, x);
  EXPECT_TRUE(g.type(sum).varying.empty());
  EXPECT_EQ(static_cast<const AllReduceOp&>(*g.nodes().back().op).axes(), g.mesh().axis("tp"));
}

TEST(Op, EqualityIsThatOfNameAndEveryAttribute) {
  EXPECT_EQ(RmsNorm(1e-5), RmsNorm(1e-5));
  EXPECT_NE(RmsNorm(1e-5).key(), RmsNorm(std::nextafter(1e-5, 1)).key()) << "numbers count exactly";
  EXPECT_NE(Unary(UnaryKind::kNeg).key(), Unary(UnaryKind::kExp).key());
  EXPECT_NE(Attention(0.5, {true, 0}).key(), Attention(0.5, {true, 8}).key());
  EXPECT_NE(Attention(0.5, {true, 0}).key(), Attention(0.5, {false, 0}).key());
  EXPECT_NE(Attention(0.5, {true, 0}).key(), AttentionBackward(0.5, {true, 0}).key());
  EXPECT_NE(Constant({{2}, DType::kF32}, 0).key(), Constant({{2}, DType::kF64}, 0).key());
  EXPECT_EQ(Transpose({1, 0}).key(), "transpose{order=[1, 0]}");
}

Graph small_graph(InputKind kind) {
  Graph g(Mesh({{"data", 2}}));
  Value x = g.input("x", kind, {{2, 8}, DType::kBF16, g.mesh().axis("data")});
  Scope scope(g, "layers.0");
  Value w = g.input("w", InputKind::kState, {{8}, DType::kBF16});
  Value y = rms_norm(g, x, w, 1e-5);
  g.output("y", y);
  g.update("last", y);
  return g;
}

TEST(Printer, WritesEverything) {
  EXPECT_EQ(
      to_string(small_graph(InputKind::kArgument)),
      "axis data = 2\n"
      "%0:bf16[2, 8]{data} = input{name=x, type=bf16[2, 8]{1}}()  # forward\n"
      "%1:bf16[8] = input{name=w, type=bf16[8]}()  # layers.0 forward\n"
      "%2:bf16[8]{data} = vary{axes=1}(%1)  # layers.0 forward\n"
      "%3:bf16[2, 8]{data}, %4:f32[2]{data} = rms_norm{epsilon=1e-05}(%0, %2)  # layers.0 forward\n"
      "argument x = %0\n"
      "state w = %1\n"
      "output y = %3\n"
      "update last = %3\n");
}

TEST(Printer, EqualGraphsAndOnlyThosePrintEqually) {
  Graph g = small_graph(InputKind::kArgument);
  EXPECT_EQ(to_string(g), to_string(small_graph(InputKind::kArgument)));
  EXPECT_NE(to_string(g), to_string(small_graph(InputKind::kState)));
  Graph copy(g.mesh());
  Rewriter rewriter(g, copy);
  for (const Node& node : g.nodes()) rewriter.copy(node);
  rewriter.finish();
  EXPECT_EQ(to_string(copy), to_string(g));
  verify(copy, "copy");
}

TEST(Rewriter, CarriesReplacementsToUsesOutputsAndUpdates) {
  Graph g;
  Value x = argument(g, "x", {4});
  Value y = unary(g, UnaryKind::kNeg, x), z = add(g, y, y);
  g.output("y", y);
  g.update("s", z);
  Graph to;
  Rewriter rewriter(g, to);
  rewriter.copy(g.nodes()[0]);
  EXPECT_FALSE(rewriter(y));
  EXPECT_THROW(rewriter.copy(g.nodes()[2]), InternalError) << "an operand has no counterpart yet";
  rewriter.enter(g.nodes()[1]);
  rewriter.map(y, unary(to, UnaryKind::kExp, rewriter(x)));
  rewriter.copy(g.nodes()[2]);
  rewriter.finish();
  EXPECT_EQ(count_ops(to, "neg"), 0);
  EXPECT_EQ(to.outputs()[0].value, rewriter(y));
  EXPECT_EQ(to.nodes()[2].inputs[0], rewriter(y));
  EXPECT_EQ(to.updates()[0].value, rewriter(z));
  EXPECT_EQ(to.updates()[0].slot, "s");
}

TEST(Graph, RefusesTensorsThatNobodyCanAddress) {
  Graph g;
  g.set_scope("layers.7.mlp");
  const int64_t large = int64_t{1} << 40;
  std::string message = user_error([&] {
    g.input("tokens", InputKind::kArgument, {{large, 256}, DType::kF32});
  });
  expect_contains(message, "f32[1099511627776, 256]");
  expect_contains(message, "more than 64.0 TiB");
  expect_contains(message, "(layers.7.mlp)");
  // Also where the product has no place in 64 bits.
  expect_contains(user_error([&] {
                    g.input("tokens", InputKind::kArgument, {{large, large}, DType::kI32});
                  }),
                  "[1099511627776, 1099511627776] has more elements than 64 bits count");
}

}  // namespace
}  // namespace tessera
