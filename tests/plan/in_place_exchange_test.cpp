// Exchanges in place of their operand: how long they may run, and plans in which their bytes are
// used meanwhile.
#include <gtest/gtest.h>

#include "tests/base/error_expectation.h"
#include "tests/plan/plan_places.h"
#include "tests/plan/small_plan.h"
#include "tests/plan/tag_kernels.h"

namespace tessera {
namespace {

Value exchange(Graph& g, Value x) { return g.add_one(std::make_shared<Exchange>(true), {x}); }

bool same_place(const Plan& plan, Value a, Value b) {
  const Place &of_a = plan.places[static_cast<size_t>(a.id)],
              &of_b = plan.places[static_cast<size_t>(b.id)];
  return of_a.storage == of_b.storage && of_a.offset == of_b.offset;
}

// early = -a; got = exchange(a) runs in place of a beside b = -x and c = -b, until d = got + c.
class InPlaceExchange : public testing::Test {
 protected:
  InPlaceExchange() {
    Value x = state(g, "x");
    a = neg(g, x);
    early = neg(g, a);
    got = exchange(g, a);
    b = neg(g, x);
    c = neg(g, b);
    d = add(g, got, c);
    g.output("d", d);
    g.output("early", early);
    plan = planned(g);
    EXPECT_TRUE(same_place(plan, a, got));
    EXPECT_EQ(at(InstructionKind::kWait, got) + 1, at(InstructionKind::kLaunch, d));
    EXPECT_LT(at(InstructionKind::kLaunch, got), at(InstructionKind::kLaunch, b));
  }

  size_t at(InstructionKind kind, Value v) const { return index_of(g, plan, kind, v); }
  void move(size_t from, size_t to) {
    Instruction moved = plan.instructions[from];
    plan.instructions.erase(plan.instructions.begin() + static_cast<std::ptrdiff_t>(from));
    plan.instructions.insert(plan.instructions.begin() + static_cast<std::ptrdiff_t>(to), moved);
  }
  void expect_refused(const std::string& part) { tessera::expect_refused(g, plan, part); }

  Graph g;
  Value a, early, got, b, c, d;
  Plan plan;
};

TEST_F(InPlaceExchange, RefusesAResultThatIsReadMeanwhile) {
  move(at(InstructionKind::kWait, got), plan.instructions.size() - 1);
  expect_refused(cat("bytes of %", got.id, " hold what is in flight"));
}

TEST_F(InPlaceExchange, RefusesAnOperandThatIsReadMeanwhile) {
  move(at(InstructionKind::kLaunch, early), at(InstructionKind::kLaunch, b));
  expect_refused(cat("bytes of %", a.id, " hold what is in flight"));
}

TEST_F(InPlaceExchange, RefusesBytesThatAreOverwrittenMeanwhile) {
  Place target = plan.places[static_cast<size_t>(got.id)];
  plan.instructions.insert(
      plan.instructions.begin() + static_cast<std::ptrdiff_t>(at(InstructionKind::kWait, got)),
      {InstructionKind::kFill, -1, {}, target, 4});
  expect_refused("bytes used meanwhile: end of ");
}

TEST_F(InPlaceExchange, RefusesAnOperandThatIsOverwrittenWhereItKeepsItsBytes) {
  PlanOptions apart;
  apart.in_place = false;
  plan = planned(g, apart);
  ASSERT_FALSE(same_place(plan, a, got));
  plan.instructions.insert(
      plan.instructions.begin() + static_cast<std::ptrdiff_t>(at(InstructionKind::kWait, got)),
      {InstructionKind::kFill, -1, {}, plan.places[static_cast<size_t>(a.id)], 4});
  expect_refused(cat("bytes of %", a.id, " hold zeros"));
}

TEST_F(InPlaceExchange, RefusesAResultOfAnotherNodeInItsBytes) {
  plan.places[static_cast<size_t>(b.id)] = plan.places[static_cast<size_t>(got.id)];
  expect_refused("bytes used meanwhile: end of ");
}

TEST_F(InPlaceExchange, RefusesItsOwnOperandSomewhereInIts) {
  Storage& s = plan.storages[static_cast<size_t>(plan.places[static_cast<size_t>(got.id)].storage)];
  s.bytes += 64;
  plan.arena_bytes += 64;
  plan.places[static_cast<size_t>(got.id)].offset = 64;
  expect_refused("undeclared in-place: ");
}

// What an exchange still reads is no other's to work in.
TEST_F(InPlaceExchange, RefusesTheOperandOfAnotherInFlight) {
  Graph h;
  Value given = neg(h, state(h, "x"));
  Value one = h.add_one(std::make_shared<Exchange>(false), {given});
  Value two = exchange(h, given);
  h.output("sum", add(h, one, two));
  Plan both = planned(h);
  EXPECT_FALSE(same_place(both, given, two));
  both.places[static_cast<size_t>(two.id)] = both.places[static_cast<size_t>(given.id)];
  expect_contains(message_of<InternalError>([&] { verify_plan(h, both); }),
                  cat("bytes of %", given.id, " hold "));
}

TEST(InPlaceExchanges, TakeAnOperandThatAnotherIsDoneWith) {
  Graph g;
  Value given = neg(g, state(g, "x"));
  Value one = g.add_one(std::make_shared<Exchange>(false), {given});
  Value done = neg(g, one);
  Value two = exchange(g, given);
  g.output("sum", add(g, done, two));
  EXPECT_TRUE(same_place(planned(g), given, two));
}

// Nobody reads it before the end, and it holds nothing but the slot: others of its kind do not wait
// for it, as they would for one that is not in place.
TEST(InPlaceExchanges, InASlotRunUntilTheEnd) {
  for (bool in_place : {true, false}) {
    Graph g;
    Value x = argument(g, "x"), slot = state(g, "slot"), other = state(g, "other");
    auto reduced = [&](Value v) { return g.add_one(std::make_shared<Exchange>(in_place), {v}); };
    Value sum = add(g, slot, neg(g, x)), one = reduced(sum);
    Value next = add(g, other, neg(g, neg(g, x))), two = reduced(next);
    g.update("slot", one);
    g.update("other", two);
    Plan plan = planned(g);
    size_t wait = index_of(g, plan, InstructionKind::kWait, one),
           second = index_of(g, plan, InstructionKind::kLaunch, two);
    EXPECT_EQ(wait > second, in_place);
    if (!in_place) continue;
    EXPECT_EQ(wait + 2, plan.instructions.size());
    EXPECT_TRUE(same_place(plan, sum, one));
    EXPECT_TRUE(same_place(plan, next, two));
    EXPECT_EQ(plan.arena_bytes, 2 * kBytes) << "x and one sum that is added to a slot";
  }
}

}  // namespace
}  // namespace tessera
