// Every promise of a graph, broken once. Graph::add keeps most of them by itself: ops that change
// their mind stand for a pass or an op with a bug.
#include "ir/verifier.h"

#include <gtest/gtest.h>

#include "ops/primitive/elementwise.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

// An op whose answers a test can change after the node was added.
class Fickle final : public OpOf<Fickle> {
 public:
  struct Answers {
    std::vector<TensorType> types{{{4}, DType::kF32}};
    std::vector<int64_t> views, placements;
    std::vector<InPlacePair> pairs;
    bool refuses = false;
  };
  explicit Fickle(std::shared_ptr<Answers> answers) : answers_(std::move(answers)) {}
  std::string_view name() const override { return "fickle"; }
  Tier tier() const override { return Tier::kPrimitive; }
  std::vector<TensorType> infer(const InferContext&) const override {
    require(!answers_->refuses, *this, "C1", "not any more");
    return answers_->types;
  }
  std::vector<int64_t> view_offsets() const override { return answers_->views; }
  std::vector<int64_t> placement_offsets() const override { return answers_->placements; }
  std::vector<InPlacePair> in_place_pairs() const override { return answers_->pairs; }
  auto fields() const { return std::make_tuple(); }

 private:
  std::shared_ptr<Answers> answers_;
};

class Verifier : public testing::Test {
 protected:
  // fickle(x[4]) in the scope "here".
  Verifier() {
    x = g.input("x", InputKind::kArgument, {{4}, DType::kF32});
    Scope scope(g, "here");
    y = g.add_one(std::make_shared<Fickle>(answers), {x});
  }
  std::string error() const {
    try {
      verify(g, "after this_pass");
    } catch (const InternalError& e) {
      return e.what();
    }
    return "";
  }
  void expect_error(const std::string& part) const { expect_contains(error(), part); }

  Graph g{Mesh({{"data", 2}})};
  std::shared_ptr<Fickle::Answers> answers = std::make_shared<Fickle::Answers>();
  Value x, y;
};

TEST_F(Verifier, AcceptsASoundGraphAndNamesPassAndNodeOtherwise) {
  EXPECT_EQ(error(), "");
  answers->types[0].shape = {5};
  EXPECT_EQ(error(),
            "graph verifier, after this_pass: output 0 should be f32[5]: %1:f32[4] = fickle(%0)  # "
            "here forward");
}

TEST_F(Verifier, ChecksTypes) {
  answers->types[0].dtype = DType::kF64;
  expect_error("output 0 should be f64[4]");
  answers->types.push_back({{4}, DType::kF32});
  expect_error("number of outputs");
  answers->refuses = true;
  expect_error("[fickle] (C1) not any more");
}

TEST_F(Verifier, IgnoresMarksThatOnlyTheGraphSets) {
  answers->types[0].varying = {1};
  EXPECT_EQ(error(), "");
}

TEST_F(Verifier, ChecksViews) {
  answers->views = {0};
  EXPECT_EQ(error(), "");
  answers->views = {1};
  expect_error("output 0 is no view of the operand");
  answers->views = {-1};
  expect_error("output 0 is no view of the operand");
  answers->views = {0, 0};
  expect_error("one view offset an output");
}

TEST_F(Verifier, ChecksPlacements) {
  answers->placements = {0};
  EXPECT_EQ(error(), "");
  answers->placements = {1};
  expect_error("operand 0 is no part of the result");
  answers->placements = {0, 0};
  expect_error("one placement offset an input");
}

TEST_F(Verifier, ChecksInPlacePairs) {
  answers->pairs = {{0, 0}};
  EXPECT_EQ(error(), "");
  answers->pairs = {{1, 0}};
  expect_error("an in-place pair of no operand");
  answers->pairs = {{0, 1}};
  expect_error("an in-place pair of no operand");
}

TEST_F(Verifier, ChecksInputs) {
  g.add_one(std::make_shared<InputOp>("stray", TensorType{{4}, DType::kF32}), {});
  expect_error("an input node is not declared");
}

TEST_F(Verifier, ChecksOutputs) {
  g.output("y", y);
  EXPECT_EQ(error(), "");
  g.output("y", x);
  expect_error("output 'y' is missing or given twice");
}

TEST_F(Verifier, ChecksThatOutputsExist) {
  g.output("y", Value{});
  expect_error("output 'y' is missing or given twice");
}

TEST_F(Verifier, ChecksThatOutputsAreOfThisGraph) {
  g.output("y", Value{77});
  expect_error("output 'y' is missing or given twice");
}

TEST_F(Verifier, ChecksUpdates) {
  g.update("new", y);  // a slot that is not read
  EXPECT_EQ(error(), "");
  g.update("new", y);
  expect_error("update of 'new' is missing or given twice");
}

TEST_F(Verifier, ChecksThatUpdatesAreOfThisGraph) {
  g.update("new", Value{77});
  expect_error("update of 'new' is missing or given twice");
}

TEST_F(Verifier, ChecksTheTypeOfAnUpdate) {
  g.input("s", InputKind::kState, {{4}, DType::kF32, g.mesh().axis("data")});
  g.update("s", y);
  expect_error("state slot 's' is f32[4]{data}, its update is f32[4]");
}

TEST_F(Verifier, ChecksThatOnlyStateIsUpdated) {
  g.update("x", y);
  expect_error("update of 'x', which is not state");
}

}  // namespace
}  // namespace tessera
