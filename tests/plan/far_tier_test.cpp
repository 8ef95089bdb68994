// Values in the far tier: an arena of their own, laid out and verified like the near one.
#include "ops/move/far_tier.h"

#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
#include "tests/plan/plan_places.h"
#include "tests/plan/small_plan.h"

namespace tessera {
namespace {

// a waits in the far tier while b is computed from it in three steps.
struct Waiting {
  Graph g;
  Value a, far, b, back;
  explicit Waiting(bool offloads) {
    a = neg(g, state(g, "x"));
    if (offloads) far = offload(g, a);
    b = neg(g, a);
    Value sum = add(g, b, neg(g, b));
    for (int i = 0; i < 2; ++i) sum = add(g, neg(g, sum), sum);
    back = offloads ? fetch(g, far) : a;
    g.output("y", add(g, sum, back));
  }
};

TEST(FarTier, TakesWhatIsOffloadedOutOfTheNearArena) {
  Waiting kept(false), offloaded(true);
  Plan near_only = planned(kept.g), plan = planned(offloaded.g);
  EXPECT_EQ(near_only.far_arena_bytes, 0);
  EXPECT_EQ(plan.far_arena_bytes, kBytes);
  EXPECT_EQ(plan.arena_bytes, near_only.arena_bytes - kBytes);
  EXPECT_EQ(plan.copies, 0);
  EXPECT_EQ(storage_of(plan, offloaded.far).tier, MemoryTier::kFar);
  EXPECT_EQ(storage_of(plan, offloaded.back).tier, MemoryTier::kNear);
  std::string text = to_string(offloaded.g, plan);
  expect_contains(text, "far arena 4096\n");
  expect_contains(text, "launch offload{} @");
  expect_contains(text, "launch fetch{} far@0 -> @");
  expect_contains(describe(offloaded.g, plan), "far arena 4.00 KiB");
  expect_lacks(to_string(kept.g, near_only), "far");
}

TEST(FarTier, ReusesItsBytes) {
  Graph g;
  Value x = state(g, "x");
  for (int i = 0; i < 4; ++i) x = fetch(g, offload(g, neg(g, x)));
  g.output("y", x);
  EXPECT_EQ(planned(g).far_arena_bytes, kBytes);
}

TEST(FarTier, AViewLiesWhereItsOperandDoes) {
  Graph g;
  Value far = reshape(g, offload(g, neg(g, state(g, "x"))), {2, kN / 2});
  g.output("y", fetch(g, far));
  Plan plan = planned(g);
  EXPECT_EQ(storage_of(plan, far).tier, MemoryTier::kFar);
  EXPECT_EQ(plan.views, 1);
  planned(g, {false, true, true});
}

TEST(FarTier, AnOffloadedUpdateIsMadeInItsSlot) {
  Graph g;
  Value slot = state(g, "s");
  g.update("s", offload(g, add(g, fetch(g, slot), state(g, "x"))));
  Plan plan = planned(g);
  EXPECT_EQ(plan.far_arena_bytes, 0);
  EXPECT_EQ(plan.copies, 0);
}

TEST(FarTier, AFarOperandOfAFlattenIsCopied) {
  Graph g;
  Value far = offload(g, neg(g, state(g, "x")));
  g.output("y", flatten(g, kN, {0}, {far}));
  Plan plan = planned(g);
  EXPECT_EQ(plan.copies, 1);
  EXPECT_EQ(plan.copy_reasons[0], "operand is in the other tier");
}

TEST(FarTier, PlansWithAWrongTierAreRefused) {
  Waiting waiting(true);
  Plan sound = planned(waiting.g);
  auto with = [&](Value v, MemoryTier tier) {
    Plan plan = sound;
    storage_of(plan, v).tier = tier;
    plan.far_arena_bytes = plan.arena_bytes;
    return plan;
  };
  expect_refused(waiting.g, with(waiting.far, MemoryTier::kNear), "is in the wrong tier: ");
  expect_refused(waiting.g, with(waiting.back, MemoryTier::kFar), "is in the wrong tier: ");
  Plan small = sound;
  small.far_arena_bytes = 0;
  expect_refused(waiting.g, small, "a storage lies outside the arena");
  Plan scratch = make_plan(waiting.g, std::vector<int64_t>(waiting.g.nodes().size(), 128));
  scratch.far_arena_bytes = scratch.arena_bytes;
  scratch.storages[static_cast<size_t>(scratch.workspaces[1])].tier = MemoryTier::kFar;
  expect_refused(waiting.g, scratch, "a workspace is in the far tier");
}

// Two values that wait at the same time, one over the other.
TEST(FarTier, OverlapsInTheFarArenaAreRefused) {
  Graph g;
  Value x = state(g, "x");
  Value a = offload(g, neg(g, x)), b = offload(g, unary(g, UnaryKind::kExp, x));
  g.output("y", add(g, fetch(g, a), fetch(g, b)));
  Plan plan = planned(g);
  EXPECT_EQ(plan.far_arena_bytes, 2 * kBytes);
  storage_of(plan, b).arena_offset = storage_of(plan, a).arena_offset;
  expect_refused(g, plan, "bytes of %");
}

}  // namespace
}  // namespace tessera
