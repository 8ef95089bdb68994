#include "autodiff/backward.h"

#include <gtest/gtest.h>

#include "backends/ref/interpreter.h"
#include "ir/marks.h"
#include "ir/verifier.h"
#include "ops/composite/embedding.h"
#include "ops/composite/linear.h"
#include "ops/composite/rms_norm.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

Value argument(Graph& g, const std::string& name, Shape shape, AxisSet varying = {},
               DType dtype = DType::kF64) {
  return g.input(name, InputKind::kArgument, {std::move(shape), dtype, varying});
}

Value sum_all(Graph& g, Value x) {
  return reduce_sum(g, reshape(g, x, {g.type(x).elements()}), {0});
}

std::vector<const Node*> nodes_of(const Graph& g, std::string_view op,
                                  Phase phase = Phase::kBackward) {
  std::vector<const Node*> nodes;
  for (const Node& node : g.nodes()) {
    if (node.op->name() == op && node.phase == phase) nodes.push_back(&node);
  }
  return nodes;
}

// d loss / d x as the reference backend computes it.
std::vector<double> gradient_of(Graph& g, Value loss, Value x, const ref::Feeds& feeds) {
  Value dx = backward(g, loss, std::vector<Value>{x})[0];
  verify(g, "backward");
  g.output("dx", dx);
  return ref::run(g, feeds).outputs.at("dx")[0].data;
}

TEST(Backward, SumsSeveralUsesAtOnce) {
  Graph g;
  Value x = argument(g, "x", {2});
  // x^3 + 2x - x: five uses of x
  Value y = sub(g, add(g, add(g, mul(g, mul(g, x, x), x), x), x), x);
  EXPECT_EQ(gradient_of(g, sum_all(g, y), x, {{"x", {{2, -3}}}}), (std::vector<double>{13, 28}));
  auto sums = nodes_of(g, "sum_n");
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0]->inputs.size(), 6u);
}

// x = table[ids]; loss = sum of (x m1) + (x m2), with the matrices m1 = m2 = table.
TEST(Backward, TheLastUseIsAddedToTheOthersByItsOp) {
  Graph g;
  Value ids = argument(g, "ids", {3}, {}, DType::kI32), table = argument(g, "table", {2, 2});
  Value x = embedding(g, ids, table);
  Value loss = sum_all(g, add(g, linear(g, x, table), linear(g, x, table)));
  const ref::Feeds feeds{{"ids", {{0, 1, 1}}}, {"table", {{1, 2, 3, 4}}}};
  // Of each product: every row of its gradient is the sum of x's rows, 7 and 10; x has the sum of
  // the table's rows, 4 and 6, a token.
  EXPECT_EQ(gradient_of(g, loss, table, feeds),
            (std::vector<double>{14 + 8, 20 + 12, 14 + 16, 20 + 24}));
  auto adding = nodes_of(g, "embedding_backward_add");
  ASSERT_EQ(adding.size(), 1u);
  const Node& others = g.nodes()[static_cast<size_t>(g.producer(adding[0]->inputs[2]))];
  EXPECT_EQ(others.op->name(), "linear_dw_add");
  EXPECT_EQ(nodes_of(g, "linear_dx_add").size(), 1u);
  EXPECT_TRUE(nodes_of(g, "sum_n").empty());
}

// An op whose first gradient is added gives its others with it.
TEST(Backward, AResidualIsAddedInTheGradientOfItsNorm) {
  Graph g;
  Value x = argument(g, "x", {2, 3}), w = argument(g, "w", {3}), c = argument(g, "c", {2, 3});
  Value loss = sum_all(g, mul(g, c, add(g, x, rms_norm(g, x, w, 1e-5))));
  auto gradients = backward(g, loss, std::vector<Value>{x, w});
  const auto adding = nodes_of(g, "rms_norm_backward_add");
  ASSERT_EQ(adding.size(), 1u);
  EXPECT_EQ(gradients[0], adding[0]->outputs[0]);
  EXPECT_EQ(gradients[1], adding[0]->outputs[1]);
  EXPECT_EQ(adding[0]->inputs[4], adding[0]->inputs[3]) << "both are the cotangent of the addition";
  EXPECT_TRUE(nodes_of(g, "sum_n").empty());
}

// To sum several parts first would be one pass over memory more than to sum all of them.
TEST(Backward, SeveralPartsAreSummedWithWhatAnOpMakes) {
  Graph g;
  Value x = argument(g, "x", {2, 2}), w = argument(g, "w", {2, 2});
  Value y = linear(g, x, w);
  backward(g, sum_all(g, add(g, y, mul(g, x, x))), std::vector<Value>{x});
  EXPECT_EQ(nodes_of(g, "linear_dx").size(), 1u);
  EXPECT_TRUE(nodes_of(g, "linear_dx_add").empty());
  ASSERT_EQ(nodes_of(g, "sum_n").size(), 1u);
  EXPECT_EQ(nodes_of(g, "sum_n")[0]->inputs.size(), 3u);
}

// A sum of another dtype is none to add to.
TEST(Backward, APartOfAnotherDtypeIsNotAddedTo) {
  Graph g;
  Value w = argument(g, "w", {4, 4}, {}, DType::kBF16),
        v = argument(g, "v", {4, 4}, {}, DType::kBF16),
        x = argument(g, "x", {3, 4}, {}, DType::kBF16);
  Value a = sum_all(g, convert(g, linear(g, x, w), DType::kF32));
  Value b = sum_all(g, convert(g, mul(g, w, v), DType::kF32));  // bf16, met first
  Value dw = backward(g, add(g, a, b), std::vector<Value>{w})[0];
  EXPECT_EQ(g.type(dw).dtype, DType::kF32);
  EXPECT_EQ(nodes_of(g, "linear_dw").size(), 1u);
  EXPECT_EQ(nodes_of(g, "sum_n").size(), 1u);
}

// The cotangent of y is that of both its summands: nobody's own to be added to.
TEST(Backward, ACotangentThatTwoValuesShareIsAddedToNone) {
  Graph g;
  Value x = argument(g, "x", {2, 2}), w1 = argument(g, "w1", {2, 2}),
        w2 = argument(g, "w2", {2, 2});
  Value y = add(g, x, linear(g, x, w1));
  Value loss = sum_all(g, linear(g, y, w2));
  const ref::Feeds feeds{{"x", {{1, 2, 3, 4}}}, {"w1", {{1, -1, 2, 3}}}, {"w2", {{2, 5, -3, 4}}}};
  // dy = (2 - 3, 5 + 4); dx = dy + dy w1
  EXPECT_EQ(gradient_of(g, loss, x, feeds),
            (std::vector<double>{-1 + 17, 9 + 28, -1 + 17, 9 + 28}));
  EXPECT_EQ(nodes_of(g, "linear_dx").size(), 1u);
  EXPECT_EQ(nodes_of(g, "linear_dx_add").size(), 1u);
}

TEST(Backward, OneUseIsNotSummed) {
  Graph g;
  Value x = argument(g, "x", {2});
  EXPECT_EQ(gradient_of(g, sum_all(g, unary(g, UnaryKind::kNeg, x)), x, {{"x", {{2, -3}}}}),
            (std::vector<double>{-1, -1}));
  EXPECT_TRUE(nodes_of(g, "sum_n").empty());
}

TEST(Backward, SumsCotangentsOfSeveralDtypesInTheWidest) {
  Graph g;
  Value w = argument(g, "w", {4, 4}, {}, DType::kBF16),
        x = argument(g, "x", {3, 4}, {}, DType::kBF16);
  Value b = sum_all(g, convert(g, mul(g, w, w), DType::kF32));     // twice in bf16
  Value a = sum_all(g, convert(g, linear(g, x, w), DType::kF32));  // dw in f32, which is met first
  Value dw = backward(g, add(g, a, b), std::vector<Value>{w})[0];
  verify(g, "backward");
  EXPECT_EQ(g.type(dw).dtype, DType::kF32);
  auto sums = nodes_of(g, "sum_n");
  ASSERT_EQ(sums.size(), 1u);
  ASSERT_EQ(sums[0]->inputs.size(), 3u);
  for (Value v : sums[0]->inputs) EXPECT_EQ(g.type(v).dtype, DType::kF32);
}

TEST(Backward, ReducesTheGradientOfAReplicatedParameterOnce) {
  Graph g(Mesh({{"data", 2}, {"tp", 2}}));
  AxisSet data = g.mesh().axis("data");
  Value x = argument(g, "x", {3}, data), w = argument(g, "w", {3});
  Value loss = sum_over_marks(g, sum_all(g, mul(g, mul(g, x, w), add(g, w, x))));  // two uses of w
  Value dw = backward(g, loss, std::vector<Value>{w})[0];
  verify(g, "backward");
  auto reduced = nodes_of(g, "all_reduce");
  ASSERT_EQ(reduced.size(), 1u);
  EXPECT_EQ(static_cast<const AllReduceOp&>(*reduced[0]->op).axes(), data);
  EXPECT_EQ(dw, reduced[0]->outputs[0]);
  EXPECT_EQ(g.nodes()[static_cast<size_t>(g.producer(reduced[0]->inputs[0]))].op->name(), "sum_n")
      << "summed before it is reduced";
}

TEST(Backward, CotangentsHaveTheMarksOfTheirValues) {
  Graph g(Mesh({{"data", 2}, {"tp", 2}}));
  AxisSet data = g.mesh().axis("data"), tp = g.mesh().axis("tp");
  Value x = argument(g, "x", {3}, data), w = argument(g, "w", {3}, tp), b = argument(g, "b", {3});
  Value y = add(g, mul(g, x, w), b);
  auto gradients = backward(g, sum_over_marks(g, sum_all(g, y)), std::vector<Value>{x, w, b, y});
  verify(g, "backward");
  EXPECT_EQ(g.type(gradients[0]).varying, data);
  EXPECT_EQ(g.type(gradients[1]).varying, tp);
  EXPECT_EQ(g.type(gradients[2]).varying, AxisSet{});
  EXPECT_EQ(g.type(gradients[3]).varying, data | tp);
}

TEST(Backward, GivesNothingForWhatTheLossDoesNotDependOn) {
  Graph g;
  Value x = argument(g, "x", {2}), unused = argument(g, "unused", {2}),
        aside = argument(g, "aside", {2});
  Value branch = mul(g, unary(g, UnaryKind::kExp, aside), x);
  Value loss = sum_all(g, mul(g, x, x));
  auto gradients = backward(g, loss, std::vector<Value>{x, unused, aside, branch});
  EXPECT_TRUE(gradients[0]);
  EXPECT_FALSE(gradients[1]);
  EXPECT_FALSE(gradients[2]);
  EXPECT_FALSE(gradients[3]);
  EXPECT_TRUE(nodes_of(g, "exp").empty());
  auto sums = nodes_of(g, "sum_n");
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0]->inputs.size(), 2u) << "the branch beside the loss adds nothing";
}

TEST(Backward, WalksOnlyTowardsWhatIsAsked) {
  Graph g;
  Value x = argument(g, "x", {3, 4}), w1 = argument(g, "w1", {4, 4}),
        w2 = argument(g, "w2", {4, 4});
  Value loss = sum_all(g, linear(g, linear(g, x, w1), w2));
  backward(g, loss, std::vector<Value>{w2});
  EXPECT_EQ(nodes_of(g, "linear_dw").size(), 1u);
  EXPECT_TRUE(nodes_of(g, "linear_dx").empty()) << "the input wants no gradient";
}

TEST(Backward, GivesGradientsOfIntermediateValuesAndOfTheLoss) {
  Graph g;
  Value x = argument(g, "x", {2});
  Value y = mul(g, x, x), loss = sum_all(g, mul(g, y, y));
  auto gradients = backward(g, loss, std::vector<Value>{loss, y, x, x});
  g.output("dloss", gradients[0]);
  g.output("dy", gradients[1]);
  g.output("dx", gradients[2]);
  auto out = ref::run(g, {{"x", {{1, 3}}}}).outputs;
  EXPECT_EQ(out.at("dloss")[0].data, (std::vector<double>{1}));
  EXPECT_EQ(out.at("dy")[0].data, (std::vector<double>{2, 18}));
  EXPECT_EQ(out.at("dx")[0].data, (std::vector<double>{4, 108}));
  EXPECT_EQ(gradients[2], gradients[3]);
}

TEST(Backward, StopsAtConstants) {
  Graph g;
  Value x = argument(g, "x", {2});
  Value stopped = g.add_one(std::make_shared<StopGradient>(), {mul(g, x, x)});
  Value y = mul(g, x, stopped);  // x * const(x^2)
  EXPECT_EQ(gradient_of(g, sum_all(g, y), x, {{"x", {{2, 3}}}}), (std::vector<double>{4, 9}));
  EXPECT_TRUE(nodes_of(g, "sum_n").empty());
}

TEST(Backward, TakesTheMaximumForAConstant) {
  Graph g;
  Value x = argument(g, "x", {2});
  Value m = broadcast(g, reduce_max(g, x, {0}), {2}, {});
  EXPECT_EQ(gradient_of(g, sum_all(g, mul(g, x, m)), x, {{"x", {{2, 3}}}}),
            (std::vector<double>{3, 3}));
}

TEST(Backward, PassesThroughIntegersAndPredicates) {
  Graph g;
  Value x = argument(g, "x", {2, 2}), ids = argument(g, "ids", {3}, {}, DType::kI32);
  Value picked = g.add_one(std::make_shared<Gather>(), {x, ids});
  Value positive = compare(g, Comparison::kGt, picked, constant_like(g, picked, 0));
  Value y = select(g, positive, mul(g, picked, picked), picked);
  EXPECT_EQ(gradient_of(g, sum_all(g, y), x, {{"x", {{1, -2, 3, 4}}}, {"ids", {{0, 0, 1}}}}),
            (std::vector<double>{4, 2, 6, 8}));
}

TEST(Backward, NodesCarryPhaseAndScopeOfTheForwardNode) {
  Graph g;
  Value x = argument(g, "x", {3, 4}), w = argument(g, "w", {4, 4});
  Value y;
  {
    Scope scope(g, "layers.1");
    y = linear(g, x, w);
  }
  Value loss = sum_all(g, y);
  Scope scope(g, "here");
  backward(g, loss, std::vector<Value>{w});
  EXPECT_EQ(nodes_of(g, "linear_dw")[0]->scope, "layers.1");
  EXPECT_EQ(g.scope(), "here");
  EXPECT_EQ(g.phase(), Phase::kForward);
}

TEST(Backward, CotangentsOfAFlatBufferMayDifferInDtype) {
  // A bf16 buffer of two matrices: linear gives the gradient of the first in f32, a plain product
  // that of the second in bf16.
  Graph g;
  Value flat = argument(g, "flat", {6}, {}, DType::kBF16);
  Value x = argument(g, "x", {1, 2}, {}, DType::kBF16);
  auto parts =
      g.add(std::make_shared<Unflatten>(std::vector<UnitMember>{{0, {2, 2}}, {4, {1, 2}}}), {flat});
  Value y = mul(g, linear(g, x, parts[0]), parts[1]);
  Value loss = sum_all(g, convert(g, y, DType::kF32));
  // y = (x0 w00 + x1 w01) v0 + (x0 w10 + x1 w11) v1
  EXPECT_EQ(gradient_of(g, loss, flat, {{"flat", {{1, 2, 3, 4, 5, 6}}}, {"x", {{1, 2}}}}),
            (std::vector<double>{5, 10, 6, 12, 5, 11}));
  EXPECT_EQ(g.type(g.outputs()[0].value), (TensorType{{6}, DType::kF32}));
}

TEST(Backward, RefusesWhatIsNoLoss) {
  Graph g(Mesh({{"data", 2}}));
  AxisSet data = g.mesh().axis("data");
  Value x = argument(g, "x", {2}), local = argument(g, "local", {}, data),
        count = argument(g, "count", {}, {}, DType::kI64);
  EXPECT_THROW(backward(g, x, std::vector<Value>{x}), InternalError);
  EXPECT_THROW(backward(g, local, std::vector<Value>{x}), InternalError)
      << "each rank would start with 1";
  EXPECT_THROW(backward(g, count, std::vector<Value>{x}), InternalError);
}

// An op with a wrong gradient rule.
class WrongGradient final : public OpOf<WrongGradient> {
 public:
  std::string_view name() const override { return "wrong_gradient"; }
  Tier tier() const override { return Tier::kPrimitive; }
  bool differentiable() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {{{2}, context.inputs[0].dtype}};
  }
  std::vector<Value> vjp(const VjpContext& context) const override {
    return {context.cotangents[0]};
  }
  auto fields() const { return std::make_tuple(); }
};

// y = x + 1 with a rule that gives the constant 2 instead of the cotangent.
class ConstantGradient final : public OpOf<ConstantGradient> {
 public:
  std::string_view name() const override { return "constant_gradient"; }
  Tier tier() const override { return Tier::kPrimitive; }
  bool differentiable() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0]};
  }
  std::vector<Value> vjp(const VjpContext& context) const override {
    return {constant_like(context.graph, context.node.inputs[0], 2)};
  }
  auto fields() const { return std::make_tuple(); }
};

TEST(Backward, MakesAReplicatedCotangentVaryLikeItsValue) {
  Graph g(Mesh({{"data", 2}}));
  Value x = argument(g, "x", {4}, g.mesh().axis("data"));
  Value y = g.add_one(std::make_shared<ConstantGradient>(), {x});
  Value dx = backward(g, sum_over_marks(g, sum_all(g, y)), std::vector<Value>{x})[0];
  EXPECT_EQ(g.type(dx).varying, g.mesh().axis("data"));
}

TEST(Backward, RefusesACotangentOfAnotherShape) {
  Graph g;
  Value x = argument(g, "x", {4});
  Value y = g.add_one(std::make_shared<WrongGradient>(), {x});
  Value loss = sum_all(g, y);
  EXPECT_THROW(backward(g, loss, std::vector<Value>{x}), InternalError);
}

}  // namespace
}  // namespace tessera
