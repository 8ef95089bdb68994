// Small graphs whose best plan is known.
#include <algorithm>

#include "ops/composite/adamw.h"
#include "ops/composite/rms_norm.h"
#include "ops/composite/sum_n.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
#include "tests/plan/small_plan.h"

namespace tessera {
namespace {

int64_t count(const Plan& plan, InstructionKind kind) {
  return std::count_if(plan.instructions.begin(), plan.instructions.end(),
                       [&](const Instruction& i) { return i.kind == kind; });
}

const Storage& storage_of(const Plan& plan, Value v) {
  return plan.storages[static_cast<size_t>(plan.places[static_cast<size_t>(v.id)].storage)];
}

TEST(Plan, AChainRunsInOneBuffer) {
  Graph g;
  g.output("y", neg(g, neg(g, neg(g, state(g, "x")))));
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, kBytes) << "the slot is external, the rest in place";
  EXPECT_EQ(plan.in_place, 2);
  EXPECT_EQ(count(plan, InstructionKind::kLaunch), 3);
  PlanOptions apart;
  apart.in_place = false;
  EXPECT_EQ(planned(g, apart).arena_bytes, 2 * kBytes)
      << "operand and result of a node live together";
}

TEST(Plan, ThePeakIsThatOfWhatIsLiveTogether) {
  Graph g;
  Value x = state(g, "x");
  Value a = neg(g, x), b = neg(g, x), c = neg(g, x);
  g.output("y", add(g, add(g, a, b), c));
  Plan plan = planned(g);
  EXPECT_EQ(plan.live_peak_bytes, 3 * kBytes);
  EXPECT_EQ(plan.arena_bytes, 3 * kBytes);
  EXPECT_EQ(plan.peak_node, g.producer(c));
  auto categories = memory_at_peak(g, plan);
  ASSERT_EQ(categories.size(), 1u);
  EXPECT_EQ(categories[0].name, "compute copies of parameters");
  EXPECT_EQ(categories[0].bytes, 3 * kBytes);
  expect_contains(describe(g, plan),
                  "arena 12.0 KiB (12288 bytes), live peak 12.0 KiB at neg (forward)");
}

TEST(Plan, ThePeakIsSortedByWhatIsThere) {
  Graph g;
  Value one = argument(g, "one", 1), w = neg(g, state(g, "w"));
  auto spread = [&] { return reshape(g, broadcast(g, one, {kN, 1}, {1}), {kN}); };
  Value a = spread(), b = spread();
  g.output("y", add(g, add(g, a, b), w));
  std::string found;
  for (const MemoryCategory& c : memory_at_peak(g, planned(g)))
    found += cat(c.name, " ", c.bytes, "; ");
  EXPECT_EQ(found, "forward values 8192; compute copies of parameters 4096; arguments 64; ");
}

TEST(Plan, DeadValuesMakeRoom) {
  Graph g;
  auto spread = [&](Value x) { return broadcast(g, x, {4, kN}, {1}); };
  Value big = spread(state(g, "x"));
  Value small = reshape(g, slice(g, big, 0, 1, 2), {kN});  // big dies here
  g.output("y", spread(small));                            // and its place is taken
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 5 * kBytes);
}

TEST(Plan, LargeBuffersAreLaidOutFirst) {
  Graph g;
  Value a = slice(g, state(g, "x"), 0, 0, kN);
  Value b = slice(g, a, 0, 0, kN);
  Value big = broadcast(g, b, {4, kN}, {1});  // a is gone, b is not: b must not lie in the middle
  g.output("y", dot(g, big, b, 0, 1, 0, DType::kF32));
  Plan plan = planned(g);
  EXPECT_EQ(plan.live_peak_bytes, 5 * kBytes + kBufferAlignment);
  EXPECT_EQ(plan.arena_bytes, plan.live_peak_bytes);
}

TEST(Plan, AValueThatNobodyReadsLivesAtItsNode) {
  Graph g;
  Value x = state(g, "x"), w = state(g, "w");
  std::vector<Value> normed = g.add(std::make_shared<RmsNorm>(1e-5), {reshape(g, x, {1, kN}), w});
  g.output("y", neg(g, neg(g, normed[0])));
  Plan plan = planned(g);
  const Storage& rstd = storage_of(plan, normed[1]);
  EXPECT_EQ(rstd.first, rstd.last);
  EXPECT_EQ(plan.arena_bytes, kBytes + kBufferAlignment);
}

TEST(Plan, ViewsCostNothing) {
  Graph g;
  Value x = neg(g, state(g, "x"));
  Value r = reshape(g, x, {4, kN / 4}), s = g.add_one(std::make_shared<StopGradient>(), {r});
  auto parts = g.add(
      std::make_shared<Unflatten>(std::vector<UnitMember>{{0, {kN / 2}}, {kN / 2, {kN / 2}}}), {x});
  g.output("s", s);
  g.output("part", parts[1]);
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, kBytes);
  EXPECT_EQ(plan.instructions.size(), 1u);
  EXPECT_EQ(plan.views, 4);
  EXPECT_EQ(plan.places[static_cast<size_t>(parts[1].id)].offset, kBytes / 2);
  EXPECT_EQ(plan.outputs[1].offset, kBytes / 2);

  PlanOptions copied;
  copied.views = false;
  EXPECT_EQ(planned(g, copied).copies, 4);
}

TEST(Plan, AViewKeepsItsOperandAlive) {
  Graph g;
  Value x = neg(g, state(g, "x"));
  Value r = reshape(g, x, {2, kN / 2});
  Value other = neg(g, neg(g, state(g, "z")));
  g.output("r", neg(g, r));
  g.output("other", other);
  EXPECT_EQ(planned(g).arena_bytes, 2 * kBytes);
}

TEST(Plan, AStateIsUpdatedInPlace) {
  Graph g;
  Value w = state(g, "w"), x = state(g, "x");
  g.update("w", add(g, w, x));
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 0);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.in_place, 1);
  PlanOptions apart;
  apart.in_place = false;
  Plan copied = planned(g, apart);
  EXPECT_EQ(copied.copies, 1);
  EXPECT_EQ(copied.arena_bytes, kBytes);
}

TEST(Plan, AdamWUpdatesThreeSlotsInPlace) {
  Graph g;
  TensorType scalar{{}, DType::kF32};
  Value w = state(g, "w"), m = state(g, "m"), v = state(g, "v"), gradient = state(g, "g");
  std::vector<Value> inputs{w,
                            m,
                            v,
                            gradient,
                            g.input("lr", InputKind::kState, scalar),
                            g.input("scale", InputKind::kState, scalar),
                            g.input("ok", InputKind::kState, {{}, DType::kBool}),
                            g.input("step", InputKind::kState, {{}, DType::kI64}),
                            g.input("begin", InputKind::kState, {{1}, DType::kI64}),
                            g.input("decay", InputKind::kState, {{1}, DType::kF32})};
  auto next = g.add(std::make_shared<AdamW>(0.9, 0.95, 1e-8), inputs);
  g.update("w", next[0]);
  g.update("m", next[1]);
  g.update("v", next[2]);
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 0);
  EXPECT_EQ(plan.instructions.size(), 1u);
}

TEST(Plan, AStateThatIsReadLaterIsUpdatedAtTheEnd) {
  Graph g;
  Value w = state(g, "w"), x = state(g, "x");
  Value next = add(g, w, x);
  g.update("w", next);
  g.output("y", mul(g, next, w));
  Plan plan = planned(g);
  ASSERT_EQ(plan.copies, 1);
  EXPECT_EQ(plan.copy_reasons[0], "update of state slot w: the slot is still read when it is made");
  EXPECT_EQ(plan.instructions.back().kind, InstructionKind::kCopy);
}

TEST(Plan, ASlotThatIsNotReadTakesTheValueWhereItIsMade) {
  Graph g;
  g.update("sum", neg(g, state(g, "x")));
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 0);
  EXPECT_EQ(plan.copies, 0);
}

TEST(Plan, AHandOverThatIsNotDeclaredIsRefused) {
  Graph g;
  Value w = g.input("w", InputKind::kState, {{32, 32}, DType::kF32});
  g.update("w", transpose(g, w, {1, 0}));  // transpose reads what it would have overwritten
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 1);
  EXPECT_EQ(plan.arena_bytes, 4096);

  Graph h;
  Value x = neg(h, h.input("x", InputKind::kState, {{32, 32}, DType::kF32}));
  h.output("y", transpose(h, x, {1, 0}));
  EXPECT_EQ(planned(h).arena_bytes, 2 * 4096);
}

TEST(Plan, AnOperandUsedTwiceByANodeIsNotHandedOver) {
  Graph g;
  Value x = neg(g, state(g, "x"));
  g.output("y",
           g.add_one(std::make_shared<SumN>(), {x, x}));  // sum_n declares its first operand only
  EXPECT_EQ(planned(g).arena_bytes, 2 * kBytes);
}

TEST(Plan, OneSlotMayTakeTheValueOfAnother) {
  Graph g;
  Value next = neg(g, state(g, "x"));
  g.update("a", next);
  g.update("b", next);
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 0);
  EXPECT_EQ(plan.copies, 1);
}

TEST(Plan, SlotsMayBeSwapped) {
  Graph g;
  Value a = state(g, "a"), b = state(g, "b");
  g.update("a", b);
  g.update("b", a);
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, kBytes);
  EXPECT_EQ(plan.copies, 3);
}

TEST(Plan, AnOutputThatViewsUpdatedStateIsCopiedFirst) {
  Graph g;
  Value w = state(g, "w"), x = state(g, "x");
  Value old = reshape(g, w, {2, kN / 2});
  g.update("w", add(g, w, x));
  g.output("old", old);
  g.output("old too", w);
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 2);
  EXPECT_EQ(plan.copy_reasons[0], "result views state slot w, which is updated");
  EXPECT_EQ(plan.arena_bytes, 2 * kBytes);
  EXPECT_EQ(plan.in_place, 1);
  EXPECT_EQ(memory_at_peak(g, plan)[0].name, "copies of results");
}

TEST(Plan, AnOutputThatViewsOtherStateIsNotCopied) {
  Graph g;
  Value w = state(g, "w");
  g.output("w", reshape(g, w, {2, kN / 2}));
  g.update("v", neg(g, w));
  EXPECT_EQ(planned(g).copies, 0);
}

TEST(Workspace, LivesOneNode) {
  Graph g;
  Value x = state(g, "x");
  Value a = neg(g, x), b = neg(g, a);
  g.output("b", b);
  Plan plan = planned(g, {}, {0, 5 * kBytes, 3 * kBytes + 1});
  EXPECT_EQ(plan.arena_bytes, 6 * kBytes) << "the second workspace reuses the first";
  EXPECT_EQ(plan.live_peak_bytes, 6 * kBytes);
  EXPECT_EQ(plan.peak_node, g.producer(a));
  const Storage& first = plan.storages[static_cast<size_t>(plan.workspaces[1])];
  EXPECT_EQ(first.first, 1);
  EXPECT_EQ(first.last, 1);
  EXPECT_EQ(first.workspace_of, 1);
  EXPECT_EQ(plan.workspaces[0], -1);
  auto categories = memory_at_peak(g, plan);
  EXPECT_EQ(categories[0].name, "workspace");
  EXPECT_EQ(categories[0].bytes, 5 * kBytes);
}

TEST(Plan, IsAFunctionOfTheGraph) {
  auto build = [] {
    Graph g;
    Value x = state(g, "x");
    Scope scope(g, "layers.0");
    Value w = state(g, "w");
    g.update("w", add(g, w, neg(g, x)));
    g.output("flat", flatten(g, 2 * kN, {32}, {neg(g, x)}));
    return g;
  };
  Graph g = build();
  std::string text = to_string(g, make_plan(g, {}));
  EXPECT_EQ(text, to_string(build(), make_plan(build(), {})));
  for (const char* part : {"arena ", "launch neg{} x+0 -> @", "fill @", "launch add{} w+0 @"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(Plan, OfAnEmptyGraphIsEmpty) {
  Graph g;
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 0);
  expect_contains(describe(g, plan), "an empty program");
}

TEST(Plan, TakesValuesWithoutElements) {
  Graph g;
  Value x = state(g, "x", 0);
  g.output("y", neg(g, neg(g, x)));
  g.update("s", neg(g, x));
  g.output("flat", flatten(g, 8, {8, 0}, {neg(g, x), neg(g, state(g, "z", 4))}));
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.fill_bytes, 16);
}

}  // namespace
}  // namespace tessera
