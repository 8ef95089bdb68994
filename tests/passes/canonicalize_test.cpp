#include "passes/canonicalize.h"

#include <gtest/gtest.h>

#include "autodiff/backward.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "ops/composite/cross_entropy.h"
#include "ops/primitive/elementwise.h"
#include "passes/precision.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

TEST(Canonicalize, ChangesNoBitAndLeavesNothingDead) {
  for (bool tied : {false, true}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(cat(tied ? "tied " : "", name(compute)));
      ModelGraph model = tiny_llama(tied);
      std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
      Graph forward = compute == DType::kF32 ? model.graph : precision(model.graph, compute);
      Graph before = with_gradients(flat_units(forward, model.parameters, units), units);
      Graph after = canonicalize(before);
      verify(after, "canonicalize");
      EXPECT_EQ(difference(ref::run(before, tiny_feeds(model, before, units)),
                           ref::run(after, tiny_feeds(model, after, units))),
                "");
      EXPECT_EQ(count_ops(before, "linear_cross_entropy"), 1);
      EXPECT_EQ(count_ops(after, "linear_cross_entropy"), 0) << "its gradient gives the loss too";
      EXPECT_EQ(count_ops(after, "linear_cross_entropy_backward"), 1);
      EXPECT_EQ(dead_nodes(after), 0);
      EXPECT_EQ(to_string(canonicalize(after)), to_string(after));
    }
  }
}

TEST(Canonicalize, KeepsTheForwardLossWithoutGradients) {
  ModelGraph model = tiny_llama();
  Graph after = canonicalize(model.graph);
  EXPECT_EQ(to_string(after), to_string(model.graph));
}

class CrossEntropy : public testing::Test {
 protected:
  Value tensor(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    return g.input(name, InputKind::kArgument, {std::move(shape), dtype});
  }
  void differentiate(Value total) {
    Value dx = backward(g, total, std::vector<Value>{x})[0];
    g.output("dx", dx);
  }

  Graph g;
  Value x = tensor("x", {3, 4}), w = tensor("w", {5, 4}),
        targets = tensor("targets", {3}, DType::kI32);
  Value loss = linear_cross_entropy(g, x, w, targets).loss;
};

TEST_F(CrossEntropy, StaysWhereTheForwardPassReadsTheLoss) {
  g.output("loss", loss);
  Value squared = mul(g, loss, loss);  // read before its gradient is there
  differentiate(squared);
  Graph after = canonicalize(g);
  verify(after, "canonicalize");
  EXPECT_EQ(count_ops(after, "linear_cross_entropy"), 1);
}

TEST_F(CrossEntropy, OfOtherOperandsIsAnotherLoss) {
  Value other = linear_cross_entropy(g, x, tensor("w2", {5, 4}), targets).loss;
  g.output("loss", loss);
  g.output("other", other);
  differentiate(loss);
  Graph after = canonicalize(g);
  verify(after, "canonicalize");
  EXPECT_EQ(count_ops(after, "linear_cross_entropy"), 1);
}

TEST_F(CrossEntropy, TwiceOfTheSameOperandsGoesTwice) {
  Value again = linear_cross_entropy(g, x, w, targets).loss;
  g.output("loss", loss);
  g.output("again", again);
  differentiate(loss);
  Graph after = canonicalize(g);
  verify(after, "canonicalize");
  EXPECT_EQ(count_ops(after, "linear_cross_entropy"), 0);
  ref::Feeds feeds{{"x", {std::vector<double>(12, 0.5)}},
                   {"w", {std::vector<double>(20, 0.25)}},
                   {"targets", {{0, 1, 4}}}};
  EXPECT_EQ(difference(ref::run(g, feeds), ref::run(after, feeds)), "");
}

TEST_F(CrossEntropy, ArgumentsStayDeclaredParametersAndStateDoNot) {
  tensor("unused", {2});
  g.input("unused state", InputKind::kState, {{2}, DType::kF32});
  g.input("unused parameter", InputKind::kParameter, {{2}, DType::kF32});
  g.output("loss", loss);
  unary(g, UnaryKind::kExp, x);
  Graph after = canonicalize(g);
  EXPECT_TRUE(after.find_input("unused"));
  EXPECT_FALSE(after.find_input("unused state"));
  EXPECT_FALSE(after.find_input("unused parameter"));
  EXPECT_EQ(count_ops(after, "exp"), 0);
}

}  // namespace
}  // namespace tessera
