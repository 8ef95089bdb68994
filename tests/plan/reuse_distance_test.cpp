#include "plan/reuse_distance.h"

#include "tests/plan/small_plan.h"

namespace tessera {
namespace {

Value exp(Graph& g, Value x) { return unary(g, UnaryKind::kExp, x); }

// With nothing in place every value lies apart from its operand.
constexpr PlanOptions kApart{.in_place = false};

// Of the node that makes v.
int64_t distance(const Graph& g, const Plan& plan, Value v) {
  return reuse_distances(g, plan)[static_cast<size_t>(g.producer(v))];
}

TEST(ReuseDistance, IsWhatIsAccessedSinceTheBytesWere) {
  Graph g;
  Value a = neg(g, argument(g, "x"));
  Value b = exp(g, a);  // where x was
  Value c = neg(g, b);  // where a was
  g.output("y", c);
  Plan plan = planned(g, kApart);
  ASSERT_EQ(plan.arena_bytes, 2 * kBytes);
  // Behind c the next run begins, with x.
  EXPECT_EQ(distance(g, plan, a), kBytes);
  EXPECT_EQ(distance(g, plan, b), 2 * kBytes);
  EXPECT_EQ(distance(g, plan, c), 2 * kBytes);
}

TEST(ReuseDistance, OfAValueOverItsOperandIsWhatIsReadBehindThat) {
  Graph g;
  Value y = neg(g, argument(g, "x"));
  g.output("y", y);
  EXPECT_EQ(distance(g, planned(g), y), 0);

  Graph two;
  Value a = neg(two, argument(two, "x"));
  Value sum = add(two, a, state(two, "w"));  // over a, and w is read behind that
  two.output("sum", sum);
  Plan plan = planned(two);
  ASSERT_EQ(plan.in_place, 2);
  EXPECT_EQ(distance(two, plan, sum), kBytes);
}

// What is longer ago than everything that the program holds may still be in a cache as large.
TEST(ReuseDistance, IsAtMostWhatTheProgramHolds) {
  Graph g;
  Value kept = neg(g, argument(g, "x"));
  Value y = add(g, kept, state(g, "w"));
  for (int i = 0; i < 20; ++i) y = exp(g, y);
  g.output("kept", kept);
  g.output("y", y);
  Plan plan = planned(g, kApart);
  EXPECT_EQ(distance(g, plan, kept), plan.arena_bytes + kBytes);
  EXPECT_EQ(distance(g, plan, y), 2 * kBytes);
}

TEST(ReuseDistance, CountsScratch) {
  Graph g;
  Value x = argument(g, "x");
  Value a = neg(g, x);
  Value b = exp(g, x);
  g.output("a", a);
  g.output("b", b);
  const int64_t scratch = 10 * kBytes;
  std::vector<int64_t> workspaces(g.nodes().size());
  workspaces[static_cast<size_t>(g.producer(b))] = scratch;
  Plan plan = planned(g, kApart, workspaces);
  // The next run reads x and writes a, and this launch reads x and has its scratch.
  EXPECT_EQ(distance(g, plan, b), 3 * kBytes + scratch);
}

}  // namespace
}  // namespace tessera
