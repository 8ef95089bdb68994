// Where the operands of a flatten are computed, and what is copied or filled instead.
#include <algorithm>

#include "ops/primitive/shaping.h"
#include "tests/plan/small_plan.h"

namespace tessera {
namespace {

TEST(Flatten, OperandsAreComputedInPlace) {
  Graph g;
  Value x = state(g, "x");
  Value a = neg(g, x), b = neg(g, x);
  g.output("flat", flatten(g, 2 * kN + 64, {0, kN + 32}, {a, b}));
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.arena_bytes, 2 * kBytes + 256);
  EXPECT_EQ(plan.fills, 2);
  EXPECT_EQ(plan.fill_bytes, 256) << "the gap between the operands and the padding behind them";
  EXPECT_EQ(plan.places[static_cast<size_t>(b.id)].offset, 4 * (kN + 32));
  PlanOptions copied;
  copied.placement = false;
  Plan apart = planned(g, copied);
  EXPECT_EQ(apart.copies, 2);
  EXPECT_GT(apart.arena_bytes, plan.arena_bytes);
}

TEST(Flatten, GradientsAreComputedInTheirSlot) {
  Graph g;
  Value x = state(g, "x");
  g.update("gradient", flatten(g, 2 * kN, {kN, 0}, {neg(g, neg(g, x)), neg(g, x)}));
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 0);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.fills, 0);
}

// A buffer that is changed part by part: each part takes over the bytes of what it was, and the
// whole those of the whole.
TEST(Flatten, LiesWhereItsPartsWereChangedInPlace) {
  for (bool slot : {false, true}) {
    Graph g;
    Value x = state(g, "x");
    Value before = slot ? state(g, "sums", 2 * kN) : neg(g, state(g, "others", 2 * kN));
    auto parts = g.add(std::make_shared<Unflatten>(std::vector<UnitMember>{{0, {kN}}, {kN, {kN}}}),
                       {before});
    Value last = add(g, parts[1], x), first = add(g, parts[0], neg(g, last));
    Value after = flatten(g, 2 * kN, {0, kN}, {first, last});
    slot ? g.update("sums", after) : g.output("flat", after);
    Plan plan = planned(g);
    EXPECT_EQ(plan.copies, 0);
    EXPECT_EQ(plan.arena_bytes, (slot ? 1 : 3) * kBytes) << "the one that is no sum";
  }
}

TEST(Flatten, AnOperandMayBeUsedAfterwards) {
  Graph g;
  Value x = state(g, "x");
  Value a = neg(g, x);
  Value flat = flatten(g, kN + 32, {0}, {a});
  g.output("flat", flat);
  g.output("sum", add(g, a, x));
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.arena_bytes, 2 * kBytes + 128);
}

TEST(Flatten, InsideAnotherIsPlacedToo) {
  Graph g;
  Value x = state(g, "x");
  Value inner = flatten(g, kN + 32, {32}, {neg(g, x)});
  Value outer = flatten(g, 2 * kN + 64, {32, kN + 64}, {inner, neg(g, x)});
  g.output("flat", outer);
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.fills, 2);
  EXPECT_EQ(plan.arena_bytes, 4 * (2 * kN + 64));
}

TEST(Flatten, ViewsOfOperandsArePlaced) {
  Graph g;
  Value a = neg(g, state(g, "x"));
  g.output("flat", flatten(g, kN + 32, {0}, {reshape(g, a, {2, kN / 2})}));
  EXPECT_EQ(planned(g).copies, 0);
}

TEST(Flatten, CopiesWhatCannotBePlacedAndSaysWhy) {
  Graph g;
  Value x = state(g, "x"), w = state(g, "w", 3 * kN);
  Value a = neg(g, x);
  Value pair = neg(g, state(g, "pair", 2 * kN));
  auto halves =
      g.add(std::make_shared<Unflatten>(std::vector<UnitMember>{{0, {kN}}, {kN, {kN}}}), {pair});
  Value early = neg(g, x);
  Value kept = neg(g, w);  // reads the slot after `early` would lie in it
  Scope scope(g, "layers.0");
  g.output("external", flatten(g, kN, {0}, {x}));
  g.output("twice", flatten(g, 2 * kN, {0, kN}, {a, a}));
  g.output("half", flatten(g, kN, {0}, {halves[1]}));
  g.update("w", flatten(g, 3 * kN, {0}, {early}));
  g.output("kept", kept);
  Plan plan = planned(g);
  std::vector<std::string> reasons = plan.copy_reasons;
  std::sort(reasons.begin(), reasons.end());
  EXPECT_EQ(reasons,
            (std::vector<std::string>{"operand is external (layers.0)",
                                      "operand is part of another buffer (layers.0)",
                                      "operand is placed already (layers.0)",
                                      "target is in use while the operand is made (layers.0)"}));
  EXPECT_EQ(plan.copies, 4);
  EXPECT_EQ(plan.copy_bytes, 4 * kBytes);
}

TEST(Flatten, APartOfASlotIsReplacedInPlaceOnlyWhereItLay) {
  auto plan_with = [](int64_t begin) {
    Graph g;
    Value w = state(g, "w", 2 * kN);
    std::vector<UnitMember> members{{begin, {kN}}};
    Value part = g.add_one(std::make_shared<Unflatten>(members), {w});
    g.update("w", flatten(g, 2 * kN, {0}, {neg(g, part)}));
    return planned(g);
  };
  EXPECT_EQ(plan_with(0).copies, 0);
  EXPECT_EQ(plan_with(0).arena_bytes, 0);
  EXPECT_EQ(plan_with(kN).copies, 0) << "it lies elsewhere";
  EXPECT_EQ(plan_with(kN / 2).copies, 1) << "the result would run over its operand";
}

TEST(Flatten, CopiesOnlyThePartThatDoesNotFit) {
  Graph g;
  Value x = state(g, "x"), w = state(g, "w", 4 * kN);
  Value early = neg(g, x);
  Value view = reshape(g, w, {4, kN});
  g.output("kept", neg(g, view));  // the slot is read through a view after `early` would lie in it
  Value inner = flatten(g, 3 * kN, {0, 2 * kN}, {early, neg(g, x)});
  g.update("w", flatten(g, 4 * kN, {0, 3 * kN}, {inner, neg(g, x)}));
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 1);
  EXPECT_EQ(plan.copy_bytes, kBytes);
  EXPECT_EQ(plan.fill_bytes, kBytes);
  EXPECT_EQ(plan.arena_bytes, 5 * kBytes);
}

}  // namespace
}  // namespace tessera
