// What a pass changed, found by looking at the graphs before and after it.
#include "passes/graph_diff.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodiff/backward.h"
#include "ir/rewriter.h"
#include "ops/primitive/elementwise.h"
#include "passes/canonicalize.h"
#include "passes/graph_page.h"
#include "passes/precision.h"
#include "passes/residency.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

using Changes = std::vector<NodeChange>;
constexpr NodeChange kSame = NodeChange::kSame, kAdded = NodeChange::kAdded,
                     kRemoved = NodeChange::kRemoved, kChanged = NodeChange::kChanged;

Value argument(Graph& g, const std::string& name, int64_t n = 4, DType dtype = DType::kF32) {
  return g.input(name, InputKind::kArgument, {{n}, dtype});
}
Value exp(Graph& g, Value x) { return unary(g, UnaryKind::kExp, x); }
Value neg(Graph& g, Value x) { return unary(g, UnaryKind::kNeg, x); }

// x, exp(x), neg(exp(x)).
Graph chain() {
  Graph g;
  g.output("y", neg(g, exp(g, argument(g, "x"))));
  return g;
}

std::vector<std::string> texts(const Graph& before, const Graph& after) {
  std::vector<std::string> all;
  for (const ChangedNodes& c : changed_nodes(before, after, diff(before, after)))
    all.push_back(cat(name(c.change), " ", c.nodes, " ", c.op, " ", name(c.phase), ": ", c.places));
  return all;
}

TEST(GraphDiff, AGraphIsTheSameAsItself) {
  const GraphDiff d = diff(chain(), chain());
  EXPECT_EQ(d.before, Changes(3, kSame));
  EXPECT_EQ(d.after, Changes(3, kSame));
  EXPECT_EQ(d.counterpart, (std::vector<int32_t>{0, 1, 2}));
}

TEST(GraphDiff, NumbersOfValuesSayNothing) {
  Graph after;
  argument(after, "another");
  after.output("y", neg(after, exp(after, argument(after, "x"))));
  const GraphDiff d = diff(chain(), after);
  EXPECT_EQ(d.after, (Changes{kAdded, kSame, kSame, kSame}));
  EXPECT_EQ(d.counterpart, (std::vector<int32_t>{-1, 0, 1, 2}));
  EXPECT_EQ(diff(after, chain()).before, (Changes{kRemoved, kSame, kSame, kSame}));
}

TEST(GraphDiff, ANodeWithOtherOperandsIsChanged) {
  Graph after;
  Value x = argument(after, "x");
  exp(after, x);
  after.output("y", neg(after, x));
  const Graph before = chain();
  const GraphDiff d = diff(before, after);
  EXPECT_EQ(d.after, (Changes{kSame, kSame, kChanged}));
  EXPECT_EQ(change_text(before, before.nodes()[2], after, after.nodes()[2]), "reads other values");
}

TEST(GraphDiff, OfEqualNodesTheOneThatReadsTheSameIsMeant) {
  Graph before;
  Value x = argument(before, "x"), y = argument(before, "y");
  exp(before, x);
  before.output("r", exp(before, y));
  Graph after;
  argument(after, "x");
  after.output("r", exp(after, argument(after, "y")));
  EXPECT_EQ(diff(before, after).before, (Changes{kSame, kSame, kRemoved, kSame}));
}

TEST(GraphDiff, AnotherTypeIsAChangeWithBothTypes) {
  Graph before, after;
  before.output("y", neg(before, argument(before, "x")));
  after.output("y", neg(after, argument(after, "x", 4, DType::kBF16)));
  const GraphDiff d = diff(before, after);
  EXPECT_EQ(d.after, (Changes{kChanged, kChanged}));
  EXPECT_EQ(change_text(before, before.nodes()[0], after, after.nodes()[0]), "f32[4] -> bf16[4]");
  EXPECT_EQ(change_text(before, before.nodes()[1], after, after.nodes()[1]),
            "f32[4] -> bf16[4]; reads bf16[4], was f32[4]");
  EXPECT_EQ(texts(before, after),
            (std::vector<std::string>{"changed 1 input forward: outside of the model",
                                      "changed 1 neg forward: outside of the model"}));
}

TEST(GraphDiff, SaysWhereOfTheModelAPassWorked) {
  const Graph before = tiny_llama(false, 5).graph;
  const Graph after = precision(before, DType::kBF16);
  const std::vector<std::string> all = texts(before, after);
  EXPECT_EQ(std::ranges::count_if(all, [](auto& t) { return !t.starts_with("changed "); }), 0)
      << join(all, "\n");
  EXPECT_NE(std::ranges::find(all, "changed 5 swiglu forward: layers 0-4"), all.end())
      << join(all, "\n");
  const GraphDiff d = diff(before, after);
  for (size_t i = 0; i < after.nodes().size(); ++i)
    EXPECT_EQ(d.counterpart[i], static_cast<int32_t>(i));
}

TEST(GraphDiff, CountsAddUp) {
  const Graph before = with_gradients(tiny_llama(false, 3).graph, {});
  for (const Graph& after : {canonicalize(before), residency(before, {.share_numerator = 1})}) {
    const GraphDiff d = diff(before, after);
    const auto added = std::ranges::count(d.after, kAdded),
               removed = std::ranges::count(d.before, kRemoved);
    EXPECT_EQ(std::ssize(before.nodes()) + added - removed, std::ssize(after.nodes()));
    EXPECT_EQ(std::ranges::count(d.before, kChanged), std::ranges::count(d.after, kChanged));
  }
}

TEST(GraphPage, LoadsNothingAndHoldsEveryNode) {
  const Graph before = tiny_llama().graph;
  const Graph after = precision(before, DType::kBF16);
  const std::string page = graph_page("accumulate </script> after precision", after, &before);
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_NE(page.find("default-src 'none'"), page.npos);
  EXPECT_NE(page.find("<title>accumulate &lt;/script> after precision</title>"), page.npos);
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(page.find(outside), page.npos) << outside;
  // One end of a script, one of the head's style.
  EXPECT_EQ(page.find("</script>"), page.rfind("</script>"));
  EXPECT_NE(page.find("\"compared\":true"), page.npos);
  EXPECT_NE(graph_page("x", after).find("\"compared\":false"), page.npos);
}

}  // namespace
}  // namespace tessera
