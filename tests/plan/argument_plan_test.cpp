// Where a plan puts the arguments of a program.
#include "tests/base/error_expectation.h"
#include "tests/plan/plan_places.h"
#include "tests/plan/small_plan.h"

namespace tessera {
namespace {

TEST(Arguments, MakeRoomForOthersOnceTheyAreRead) {
  Graph g;
  Value x = argument(g, "x");
  g.output("y", neg(g, neg(g, x)));
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, kBytes);
  EXPECT_EQ(plan.in_place, 2);
  EXPECT_EQ(plan.copies, 0);
  expect_contains(to_string(g, plan), "argument x @0\n");
  PlanOptions apart;
  apart.in_place = false;
  EXPECT_EQ(planned(g, apart).arena_bytes, 2 * kBytes);
}

TEST(Arguments, AreThereFromTheBeginningToTheirLastReader) {
  Graph g;
  Value early = argument(g, "early"), late = argument(g, "late");
  Value a = neg(g, early);
  Value b = unary(g, UnaryKind::kExp, neg(g, a));
  g.output("y", add(g, b, late));
  Plan plan = planned(g);
  EXPECT_EQ(plan.arena_bytes, 2 * kBytes) << "the chain in one, `late` in the other";
  EXPECT_EQ(storage_of(plan, early).first, 0);
  EXPECT_EQ(storage_of(plan, late).first, 0);
  auto categories = memory_at_peak(g, plan);
  ASSERT_EQ(categories.size(), 1u);
  EXPECT_EQ(categories[0].name, "arguments");
}

TEST(Arguments, HaveAPlaceThoughNobodyReadsThem) {
  Graph g;
  Value x = argument(g, "x"), z = argument(g, "z");
  Value one = g.input("one", InputKind::kArgument, {{}, DType::kF32});
  g.output("y", neg(g, neg(g, one)));
  Plan plan = planned(g);
  EXPECT_FALSE(storage_of(plan, x).external);
  EXPECT_EQ(plan.arena_bytes, 2 * kBytes + kBufferAlignment);
  EXPECT_NE(storage_of(plan, x).arena_offset, storage_of(plan, z).arena_offset);
}

TEST(Arguments, AsResultsStayUntilTheEnd) {
  Graph g;
  Value x = argument(g, "x");
  g.output("x", x);
  g.output("y", neg(g, neg(g, x)));
  EXPECT_EQ(planned(g).arena_bytes, 2 * kBytes);
}

TEST(Arguments, ArePlacedInAFlattenAndCopiedIntoASlot) {
  Graph g;
  Value x = argument(g, "x");
  g.output("flat", flatten(g, 2 * kN, {kN, 0}, {x, neg(g, x)}));
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(plan.arena_bytes, 2 * kBytes);

  for (bool read : {false, true}) {
    Graph h;
    if (read) h.output("old", neg(h, state(h, "w")));
    h.update("w", argument(h, "x"));
    EXPECT_EQ(planned(h).copies, 1);
  }
}

TEST(Arguments, InPlacesOfOthersAreRefused) {
  Graph g;
  Value x = argument(g, "x"), z = argument(g, "z"), w = state(g, "w");
  g.output("y", add(g, add(g, x, z), w));
  Plan sound = planned(g), plan = sound;
  storage_of(plan, x).arena_offset = storage_of(plan, z).arena_offset;
  expect_refused(g, plan, "bytes of %");
  plan = sound;
  place(plan, x) = place(plan, w);
  expect_refused(g, plan, "argument x is in a state slot");
  plan = sound;
  Instruction fill{InstructionKind::kFill, -1, {}, place(plan, x), kBytes};
  plan.instructions.insert(plan.instructions.begin(), fill);
  expect_refused(g, plan, "hold zeros");
}

}  // namespace
}  // namespace tessera
