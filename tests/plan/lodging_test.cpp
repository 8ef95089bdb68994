// Values that lie in slots until the new content of these is made.
#include <algorithm>

#include "ops/move/far_tier.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
#include "tests/plan/plan_places.h"
#include "tests/plan/small_plan.h"
#include "tests/plan/tag_kernels.h"

namespace tessera {
namespace {

constexpr PlanOptions kWithout{.lodging = false};
constexpr int64_t kPart = kN / 4;

// The slot in which a value lies; "" in an arena.
std::string slot_of(const Plan& plan, Value v) {
  return plan.storages[static_cast<size_t>(plan.places[static_cast<size_t>(v.id)].storage)]
      .external_name;
}
Value part_of(Graph& g, Value v) { return slice(g, v, 0, 0, kPart); }
Value spread(Graph& g, Value part, int64_t rows = 4) {
  return broadcast(g, part, {rows, kPart}, {1});
}

// `big` is dead when the new content of slot "s" is made of a part of it.
struct Guest {
  Graph g;
  Value x, big, part;
  Guest() {
    x = state(g, "x");
    big = neg(g, x);
    part = part_of(g, big);
  }
};

TEST(Lodging, AValueLiesInASlotThatWaitsForItsContent) {
  Guest guest;
  guest.g.update("s", spread(guest.g, guest.part));
  Plan plan = planned(guest.g), without = planned(guest.g, kWithout);
  EXPECT_EQ(slot_of(plan, guest.big), "s");
  EXPECT_EQ(plan.lodged_bytes, kBytes);
  EXPECT_EQ(plan.arena_bytes, kBytes / 4) << "the content is made of it";
  expect_contains(describe(guest.g, plan), ", 4.00 KiB lodged in slots");
  EXPECT_EQ(slot_of(without, guest.big), "");
  EXPECT_EQ(without.lodged_bytes, 0);
  EXPECT_EQ(without.arena_bytes, kBytes + kBytes / 4);
  expect_lacks(describe(guest.g, without), "lodged");
}

TEST(Lodging, ASlotThatIsCopiedToHasRoomUntilTheEnd) {
  Guest guest;
  Value next = spread(guest.g, guest.part);
  guest.g.update("s", next);
  Plan plan = planned(guest.g, {.in_place = false});
  EXPECT_EQ(plan.copies, 1);
  EXPECT_EQ(slot_of(plan, guest.big), "s");
  EXPECT_EQ(slot_of(plan, next), "");
}

TEST(Lodging, TheSlotThatIsNeededSoonestIsTaken) {
  Guest guest;
  Value early = spread(guest.g, guest.part), late = neg(guest.g, guest.x);
  guest.g.update("late", late);
  guest.g.update("early", early);
  EXPECT_EQ(slot_of(planned(guest.g), guest.big), "early");
}

// Of three that live together, two find room side by side.
TEST(Lodging, GuestsDoNotOverlap) {
  Graph g;
  Value x = state(g, "x");
  std::vector<Value> big;
  for (int i = 0; i < 3; ++i) big.push_back(neg(g, x));
  Value part = part_of(g, big[0]);
  for (int i = 1; i < 3; ++i) part = add(g, part, part_of(g, big[static_cast<size_t>(i)]));
  g.update("s", spread(g, part, 8));
  Plan plan = planned(g);
  std::vector<int64_t> offsets;
  for (Value v : big) {
    if (slot_of(plan, v) == "s") offsets.push_back(plan.places[static_cast<size_t>(v.id)].offset);
  }
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, kBytes}));
  EXPECT_LT(plan.arena_bytes, 2 * kBytes);
  EXPECT_GE(planned(g, kWithout).arena_bytes, 3 * kBytes);
}

// One after the other, many have the room of one.
TEST(Lodging, GuestsFollowEachOther) {
  Graph g;
  Value part = part_of(g, state(g, "x"));
  std::vector<Value> big;
  for (int i = 0; i < 3; ++i) {
    big.push_back(spread(g, part));
    part = reshape(g, slice(g, big.back(), 0, 1, 2), {kPart});
  }
  g.update("s", spread(g, part));
  Plan plan = planned(g);
  for (Value v : big) {
    EXPECT_EQ(slot_of(plan, v), "s");
    EXPECT_EQ(plan.places[static_cast<size_t>(v.id)].offset, 0);
  }
  EXPECT_EQ(plan.lodged_bytes, 3 * kBytes);
}

// Of what follows, nothing may change.
void expect_nobody_lodges(const Graph& g) {
  Plan plan = planned(g);
  EXPECT_EQ(plan.lodged_bytes, 0);
  EXPECT_EQ(to_string(g, plan), to_string(g, planned(g, kWithout)));
}

TEST(Lodging, NotInASlotThatIsRead) {
  Guest guest;
  Value s = guest.g.input("s", InputKind::kState, {{4, kPart}, DType::kF32});
  guest.g.update("s", add(guest.g, spread(guest.g, guest.part), s));
  expect_nobody_lodges(guest.g);
}

TEST(Lodging, NotInASlotThatIsNotUpdated) {
  Guest guest;
  Value y = state(guest.g, "y", 8 * kN);
  guest.g.output("y", part_of(guest.g, y));
  guest.g.output("part", guest.part);
  expect_nobody_lodges(guest.g);
}

TEST(Lodging, NotInAFarSlot) {
  Guest guest;
  guest.g.update("s", offload(guest.g, spread(guest.g, guest.part)));
  expect_nobody_lodges(guest.g);
}

TEST(Lodging, NotInTheSlotsOfAnOptimizersUpdate) {
  Graph g;
  g.set_phase(Phase::kOptimizer);
  g.update("s", spread(g, part_of(g, neg(g, state(g, "x")))));
  expect_nobody_lodges(g);
}

TEST(Lodging, NotWhatIsReadWhereTheContentIsMade) {
  Graph g;
  Value x = state(g, "x"), big = neg(g, x);
  g.update("s", broadcast(g, big, {2, kN}, {1}));
  expect_nobody_lodges(g);
}

TEST(Lodging, NotWhatIsReadLater) {
  Guest guest;
  guest.g.update("s", spread(guest.g, guest.part));
  guest.g.output("later", part_of(guest.g, guest.big));
  EXPECT_EQ(slot_of(planned(guest.g), guest.big), "");
}

TEST(Lodging, NotAResult) {
  Guest guest;
  guest.g.update("s", spread(guest.g, guest.part));
  guest.g.output("big", guest.big);
  EXPECT_EQ(slot_of(planned(guest.g), guest.big), "");
}

TEST(Lodging, NotAnArgument) {
  Graph g;
  Value x = argument(g, "x");
  g.update("s", spread(g, part_of(g, x)));
  EXPECT_EQ(slot_of(planned(g), x), "");
}

TEST(Lodging, NotWhatIsTooLarge) {
  Guest guest;
  guest.g.update("s", spread(guest.g, guest.part, 3));
  EXPECT_EQ(slot_of(planned(guest.g), guest.big), "");
  Graph scalar;
  scalar.update("s", slice(scalar, slice(scalar, state(scalar, "x"), 0, 0, 16), 0, 0, 1));
  expect_nobody_lodges(scalar);
}

TEST(Lodging, NotAFarValue) {
  Guest guest;
  Value far = offload(guest.g, guest.big);
  guest.g.update("s", spread(guest.g, part_of(guest.g, fetch(guest.g, far))));
  Plan plan = planned(guest.g);
  EXPECT_EQ(slot_of(plan, far), "");
  EXPECT_EQ(plan.far_arena_bytes, kBytes);
}

// Ranks may read each other's arenas, not each other's slots.
TEST(Lodging, NotWhatRanksExchange) {
  Guest guest;
  Value theirs = guest.g.add_one(std::make_shared<Exchange>(false), {guest.big});
  guest.g.update("s", spread(guest.g, part_of(guest.g, theirs)));
  Plan plan = planned(guest.g);
  EXPECT_EQ(slot_of(plan, guest.big), "");
  EXPECT_EQ(slot_of(plan, theirs), "");
}

class LodgedPlan : public testing::Test {
 protected:
  LodgedPlan() {
    next = spread(guest.g, guest.part);
    guest.g.update("s", next);
    guest.g.output("later", part_of(guest.g, late = neg(guest.g, guest.x)));
    plan = planned(guest.g);
    EXPECT_EQ(slot_of(plan, late), "") << "the slot has its content by then";
  }
  void expect_refused(const std::string& part) { tessera::expect_refused(guest.g, plan, part); }
  Place& place(Value v) { return plan.places[static_cast<size_t>(v.id)]; }
  Storage& slot() { return plan.storages[static_cast<size_t>(place(next).storage)]; }

  Guest guest;
  Value next, late;
  Plan plan;
};

TEST_F(LodgedPlan, IsRefusedWhereAGuestOverwritesTheContent) {
  place(late) = place(next);
  expect_refused(cat("update of s: bytes of %", next.id, " hold %", late.id));
}

TEST(Lodging, AGuestThatTheContentOverwritesIsRefused) {
  Graph g;
  Value x = state(g, "x"), big = neg(g, x), content = neg(g, x), part = part_of(g, big);
  g.update("s", content);
  g.output("part", part);
  Plan sound = planned(g);
  sound.places[static_cast<size_t>(big.id)] = sound.places[static_cast<size_t>(content.id)];
  expect_contains(message_of<InternalError>([&] { verify_plan(g, sound); }),
                  cat("bytes of %", big.id, " hold %", content.id));
}

TEST_F(LodgedPlan, IsRefusedWhereAGuestLeavesItsSlot) {
  place(guest.big).offset = kBufferAlignment;
  expect_refused("lies outside its storage");
}

TEST_F(LodgedPlan, IsRefusedWhereTheSlotIsNotOfTheProgram) {
  Storage other = slot();
  other.external_name = "other";
  place(guest.big) = {static_cast<int32_t>(plan.storages.size()), 0};
  plan.storages.push_back(other);
  expect_refused("slot other is none of the program's");
}

TEST_F(LodgedPlan, IsRefusedWhereTheSlotIsFar) {
  slot().tier = MemoryTier::kFar;
  expect_refused("slot s is in the wrong tier");
}

TEST(Lodging, ANearGuestOfAFarSlotIsRefused) {
  Guest guest;
  Value next = offload(guest.g, spread(guest.g, guest.part));
  guest.g.update("s", next);
  Plan plan = planned(guest.g);
  plan.places[static_cast<size_t>(guest.big.id)] = plan.places[static_cast<size_t>(next.id)];
  expect_contains(message_of<InternalError>([&] { verify_plan(guest.g, plan); }),
                  cat("%", guest.big.id, " is in the wrong tier"));
}

}  // namespace
}  // namespace tessera
