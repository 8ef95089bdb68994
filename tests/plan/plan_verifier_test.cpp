// Plans with one thing wrong: each must be refused, with a message that says what.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/composite/adamw.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "plan/plan.h"
#include "tests/base/error_expectation.h"
#include "tests/plan/plan_places.h"
#include "tests/plan/tag_kernels.h"

namespace tessera {
namespace {

constexpr int64_t kN = 256, kBytes = 4 * kN;

class PlanVerifier : public testing::Test {
 protected:
  // flat = [-x, 0.., transpose(y)], w += x, with workspaces.
  PlanVerifier() {
    TensorType square{{16, 16}, DType::kF32};
    x = g.input("x", InputKind::kState, square);
    w = g.input("w", InputKind::kState, square);
    a = unary(g, UnaryKind::kNeg, x);
    Value y = unary(g, UnaryKind::kExp, x);
    b = transpose(g, y, {1, 0});
    flat =
        g.add_one(std::make_shared<Flatten>(2 * kN + 64, std::vector<int64_t>{0, kN + 64}), {a, b});
    next = add(g, w, x);
    g.update("w", next);
    g.output("flat", flat);
    g.output("old w", w);
    std::vector<int64_t> workspaces(g.nodes().size(), 0);
    workspaces[static_cast<size_t>(g.producer(b))] = 512;
    plan = make_plan(g, workspaces);
    verify_plan(g, plan);
    EXPECT_EQ(plan.copies, 1);
    EXPECT_EQ(plan.fills, 1);
  }

  void expect_refused(const std::string& part) { tessera::expect_refused(g, plan, part); }
  Storage& storage(Value v) { return plan.storages[static_cast<size_t>(place(v).storage)]; }
  Place& place(Value v) { return plan.places[static_cast<size_t>(v.id)]; }
  size_t launch_of(Value v) {
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      if (plan.instructions[i].kind == InstructionKind::kLaunch &&
          plan.instructions[i].node == g.producer(v))
        return i;
    }
    return plan.instructions.size();
  }
  Instruction& first(InstructionKind kind) {
    return *std::find_if(plan.instructions.begin(), plan.instructions.end(),
                         [&](const Instruction& i) { return i.kind == kind; });
  }
  void drop(size_t i) {
    plan.instructions.erase(plan.instructions.begin() + static_cast<std::ptrdiff_t>(i));
  }

  Graph g;
  Value x, w, a, b, flat, next;
  Plan plan;
};

TEST_F(PlanVerifier, RefusesAShiftedBuffer) {
  for (Storage& s : plan.storages) {
    if (s.external || s.arena_offset == 0) continue;
    s.arena_offset -= kBufferAlignment;  // into its neighbour
    expect_refused("plan verifier: ");
    return;
  }
  FAIL() << "nothing to shift";
}

TEST_F(PlanVerifier, RefusesABufferOutsideTheArena) {
  Plan sound = plan;
  plan.arena_bytes -= kBufferAlignment;
  expect_refused("a storage lies outside the arena");
  plan = sound;
  storage(flat).arena_offset = -kBufferAlignment;
  expect_refused("a storage lies outside the arena");
}

TEST_F(PlanVerifier, RefusesABufferThatIsNotAligned) {
  storage(flat).arena_offset += 4;
  plan.arena_bytes += kBufferAlignment;
  expect_refused("a storage lies outside the arena");
}

TEST_F(PlanVerifier, RefusesAMissingFill) {
  drop(static_cast<size_t>(&first(InstructionKind::kFill) - plan.instructions.data()));
  expect_refused("output flat: bytes of %");
}

TEST_F(PlanVerifier, RefusesAFillThatIsTooShort) {
  first(InstructionKind::kFill).bytes -= 4;
  expect_refused("output flat: bytes of %");
}

TEST_F(PlanVerifier, RefusesAFillOverAnOperand) {
  first(InstructionKind::kFill).target.offset -= 4;
  expect_refused("output flat: bytes of %");
}

TEST_F(PlanVerifier, RefusesAMissingCopy) {
  drop(static_cast<size_t>(&first(InstructionKind::kCopy) - plan.instructions.data()));
  expect_refused("output old w: bytes of %");
}

TEST_F(PlanVerifier, RefusesACopyAfterTheUpdate) {
  Instruction copy = first(InstructionKind::kCopy);
  drop(static_cast<size_t>(&first(InstructionKind::kCopy) - plan.instructions.data()));
  plan.instructions.push_back(copy);
  expect_refused(cat("output old w: bytes of %", w.id, " hold %", next.id));
}

TEST_F(PlanVerifier, RefusesAMissingLaunch) {
  drop(launch_of(a));
  expect_refused("bytes of %");
}

TEST_F(PlanVerifier, RefusesAMissingUpdate) {
  drop(launch_of(next));
  expect_refused(cat("update of w: bytes of %", next.id, " hold %", w.id));
}

TEST_F(PlanVerifier, RefusesALaunchBeforeItsOperand) {
  size_t t = launch_of(b);
  std::swap(plan.instructions[t], plan.instructions[t - 1]);
  expect_refused(" = transpose{order=[1, 0]}(");
}

TEST_F(PlanVerifier, RefusesAHandOverThatTheOpDoesNotDeclare) {
  Value y = g.nodes()[static_cast<size_t>(g.producer(b))].inputs[0];
  place(y) = place(b);  // transpose in place
  expect_refused("undeclared in-place: ");
}

TEST_F(PlanVerifier, RefusesAHandOverAtAnotherOffset) {
  Graph h;
  Value p = unary(h, UnaryKind::kNeg, h.input("p", InputKind::kState, {{kN}, DType::kF32}));
  h.output("q", unary(h, UnaryKind::kNeg, p));
  Plan shifted = make_plan(h, {});
  shifted.storages[static_cast<size_t>(shifted.places[1].storage)].bytes += 64;
  shifted.arena_bytes += 64;
  verify_plan(h, shifted);
  shifted.places[1].offset = 64;
  EXPECT_THROW(verify_plan(h, shifted), InternalError);
}

TEST_F(PlanVerifier, RefusesResultsThatOverlap) {
  Graph h;
  Value p = h.input("p", InputKind::kState, {{kN}, DType::kF32});
  auto halves = h.add(
      std::make_shared<Unflatten>(std::vector<UnitMember>{{0, {kN / 2}}, {kN / 2, {kN / 2}}}), {p});
  TensorType scalar{{}, DType::kF32}, table{{1}, DType::kF32};
  Value lr = h.input("lr", InputKind::kState, scalar),
        ok = h.input("ok", InputKind::kState, {{}, DType::kBool});
  Value step = h.input("step", InputKind::kState, {{}, DType::kI64}),
        begin = h.input("begin", InputKind::kState, {{1}, DType::kI64});
  Value decay = h.input("decay", InputKind::kState, table);
  auto out = h.add(std::make_shared<AdamW>(0.9, 0.9, 1e-8),
                   {halves[0], halves[1], halves[0], halves[1], lr, lr, ok, step, begin, decay});
  Plan overlapping = make_plan(h, {});
  verify_plan(h, overlapping);
  overlapping.places[static_cast<size_t>(out[1].id)] =
      overlapping.places[static_cast<size_t>(out[0].id)];
  EXPECT_THROW(verify_plan(h, overlapping), InternalError) << "even though nobody reads them";
}

TEST_F(PlanVerifier, RefusesAWorkspaceOverAnOperandOrAResult) {
  Storage& scratch =
      plan.storages[static_cast<size_t>(plan.workspaces[static_cast<size_t>(g.producer(b))])];
  int64_t result = storage(flat).arena_offset + place(b).offset;
  ASSERT_EQ(result % kBufferAlignment, 0);
  scratch.arena_offset = result;
  expect_refused("scratch overlaps an output: ");
  Value y = g.nodes()[static_cast<size_t>(g.producer(b))].inputs[0];
  scratch.arena_offset = storage(y).arena_offset;
  expect_refused("scratch overlaps an operand: ");
}

TEST_F(PlanVerifier, RefusesAWorkspaceOverALiveValue) {
  Storage& scratch =
      plan.storages[static_cast<size_t>(plan.workspaces[static_cast<size_t>(g.producer(b))])];
  scratch.arena_offset = storage(flat).arena_offset;  // a lies there
  ASSERT_EQ(place(a).offset, 0);
  expect_refused(cat("output flat: bytes of %", flat.id, " hold scratch"));
}

TEST_F(PlanVerifier, RefusesPlacesOutsideTheirStorage) {
  Plan sound = plan;
  std::string reason = " lies outside its storage";
  auto refuses = [&](const auto& change) {
    plan = sound;
    change();
    expect_refused(reason);
  };
  refuses([&] { place(a).offset = 2 * kBytes; });
  refuses([&] { place(a).offset = -4; });
  refuses([&] { plan.outputs[0].offset += 4; });
  refuses([&] { first(InstructionKind::kFill).bytes = 1 << 20; });
  refuses([&] { first(InstructionKind::kFill).bytes = -4; });
  reason = " has no storage";
  refuses([&] { place(a).storage = -1; });
  refuses([&] { place(a).storage = 1000; });
  refuses([&] { first(InstructionKind::kCopy).source.storage = 1000; });
}

TEST_F(PlanVerifier, RefusesWhatIsNotThere) {
  Plan sound = plan;
  plan.places.pop_back();
  expect_refused("a value has no place");
  plan = sound;
  plan.outputs.pop_back();
  expect_refused("an output has no place");
  plan = sound;
  plan.instructions[launch_of(a)].node = 1000;
  expect_refused("a launch of no node");
  plan = sound;
  plan.instructions[launch_of(a)].node = -1;
  expect_refused("a launch of no node");
  plan = sound;
  plan.workspaces[0] = 1000;
  expect_refused("a workspace has no storage");
  plan = sound;
  plan.workspaces.pop_back();
  expect_refused("one workspace a node");
  plan = sound;
  storage(w).external_name = "v";
  expect_refused("input w is not in its slot");
  plan = sound;
  place(w) = place(flat);
  expect_refused("input w is not in its slot");
  plan = sound;
  storage(w).bytes += 64;
  place(w).offset = 64;
  expect_refused("input w is not in its slot");
  plan = sound;
  storage(w).external = false;
  storage(w).arena_offset = 0;
  expect_refused("input w is not in its slot");
  plan = sound;
  storage(flat).external = true;
  storage(flat).external_name = "w";
  expect_refused("two storages for w");
}

TEST_F(PlanVerifier, RefusesAnUpdateThatHasNoStorage) {
  g.update("only written", a);
  plan = make_plan(g, std::vector<int64_t>(g.nodes().size(), 0));
  verify_plan(g, plan);
  for (Storage& s : plan.storages)
    if (s.external_name == "only written") s.external_name = "another";
  expect_refused("no storage for slot only written");
}

TEST_F(PlanVerifier, RefusesASlotThatIsOverwrittenWithoutAnUpdate) {
  Instruction fill = first(InstructionKind::kFill);
  fill.target = place(x);
  plan.instructions.push_back(fill);
  expect_refused("input x at the end");
}

// got = exchange(a) runs beside b = exp(x) and c = -b, until d = got + c. With scratch.
class PlanVerifierInFlight : public testing::Test {
 protected:
  PlanVerifierInFlight() {
    TensorType row{{kN}, DType::kF32};
    Value x = g.input("x", InputKind::kState, row);
    a = unary(g, UnaryKind::kExp, x);
    got = g.add_one(std::make_shared<Exchange>(false), {a});
    b = unary(g, UnaryKind::kExp, x);
    c = transpose(g, b, {0});
    d = add(g, got, c);
    g.output("d", d);
    std::vector<int64_t> workspaces(g.nodes().size(), 512);
    plan = make_plan(g, workspaces);
    verify_plan(g, plan);
    EXPECT_EQ(index_of(InstructionKind::kWait, got) + 1, index_of(InstructionKind::kLaunch, d));
  }

  size_t index_of(InstructionKind kind, Value v) const {
    return tessera::index_of(g, plan, kind, v);
  }
  Instruction take(size_t i) {
    Instruction instruction = plan.instructions[i];
    plan.instructions.erase(plan.instructions.begin() + static_cast<std::ptrdiff_t>(i));
    return instruction;
  }
  void insert(size_t i, Instruction instruction) {
    plan.instructions.insert(plan.instructions.begin() + static_cast<std::ptrdiff_t>(i),
                             instruction);
  }
  Place& place(Value v) { return plan.places[static_cast<size_t>(v.id)]; }
  Storage& scratch_of(Value v) {
    return plan.storages[static_cast<size_t>(plan.workspaces[static_cast<size_t>(g.producer(v))])];
  }
  // Overwritten just before the end of the exchange.
  void overwrite(Place target, int64_t bytes) {
    insert(index_of(InstructionKind::kWait, got), {InstructionKind::kFill, -1, {}, target, bytes});
  }
  void expect_refused(const std::string& part) { tessera::expect_refused(g, plan, part); }

  Graph g;
  Value a, got, b, c, d;
  Plan plan;
};

TEST_F(PlanVerifierInFlight, RefusesAResultThatIsReadBeforeTheWait) {
  Instruction wait = take(index_of(InstructionKind::kWait, got));
  plan.instructions.push_back(wait);
  expect_refused(cat("bytes of %", got.id, " hold what is in flight"));
}

TEST_F(PlanVerifierInFlight, RefusesACopyOfAResultBeforeTheWait) {
  plan.storages.push_back({.bytes = kBytes, .arena_offset = plan.arena_bytes});
  plan.arena_bytes += kBytes;
  Place copy{static_cast<int32_t>(plan.storages.size()) - 1, 0};
  insert(index_of(InstructionKind::kWait, got),
         {InstructionKind::kCopy, -1, place(got), copy, kBytes});
  insert(index_of(InstructionKind::kLaunch, d),
         {InstructionKind::kCopy, -1, copy, place(got), kBytes});
  expect_refused(cat("bytes of %", got.id, " hold what is in flight"));
}

TEST_F(PlanVerifierInFlight, RefusesAnExchangeThatNobodyWaitsFor) {
  Graph h;
  Value x = h.input("x", InputKind::kState, {{kN}, DType::kF32});
  h.add_one(std::make_shared<Exchange>(false), {x});
  Plan unread = make_plan(h, {});
  verify_plan(h, unread);
  ASSERT_EQ(unread.instructions.back().kind, InstructionKind::kWait);
  unread.instructions.pop_back();
  expect_contains(message_of<InternalError>([&] { verify_plan(h, unread); }),
                  "nobody waits for %1");
}

TEST_F(PlanVerifierInFlight, RefusesAWaitForWhatHasNotBegun) {
  Instruction wait = take(index_of(InstructionKind::kWait, got));
  insert(index_of(InstructionKind::kLaunch, got), wait);
  expect_refused("not begun: end of ");
}

TEST_F(PlanVerifierInFlight, RefusesASecondWait) {
  size_t i = index_of(InstructionKind::kWait, got);
  insert(i, plan.instructions[i]);
  expect_refused("not begun: end of ");
}

TEST_F(PlanVerifierInFlight, RefusesASecondBegin) {
  size_t i = index_of(InstructionKind::kLaunch, got);
  insert(i, plan.instructions[i]);
  expect_refused("begun twice: ");
}

TEST_F(PlanVerifierInFlight, RefusesAnotherLaneThanTheOps) {
  plan.instructions[index_of(InstructionKind::kLaunch, got)].lane = Lane::kReduce;
  expect_refused("on lane reduce: ");
  plan.instructions[index_of(InstructionKind::kLaunch, got)].lane = Lane::kCompute;
  expect_refused("on lane compute: ");
}

TEST_F(PlanVerifierInFlight, RefusesAWaitForNoNode) {
  plan.instructions[index_of(InstructionKind::kWait, got)].node = 1000;
  expect_refused("a launch of no node");
}

TEST_F(PlanVerifierInFlight, RefusesAnOperandThatIsOverwrittenMeanwhile) {
  overwrite(place(a), 4);
  expect_refused(cat("bytes of %", a.id, " hold zeros"));
}

TEST_F(PlanVerifierInFlight, RefusesAResultThatIsOverwrittenMeanwhile) {
  overwrite({place(got).storage, place(got).offset + kBytes - 4}, 4);
  expect_refused("bytes used meanwhile: end of ");
}

TEST_F(PlanVerifierInFlight, RefusesScratchThatIsOverwrittenMeanwhile) {
  overwrite({plan.workspaces[static_cast<size_t>(g.producer(got))], 0}, 4);
  expect_refused("bytes used meanwhile: end of ");
}

// The one node's scratch would look like the other's.
TEST_F(PlanVerifierInFlight, RefusesScratchThatAnotherNodeUsesMeanwhile) {
  scratch_of(c).arena_offset = scratch_of(got).arena_offset;
  expect_refused("bytes used meanwhile: end of ");
}

TEST_F(PlanVerifierInFlight, RefusesTwoExchangesOverTheSameBytes) {
  Graph h;
  Value x = h.input("x", InputKind::kState, {{kN}, DType::kF32});
  Value one = h.add_one(std::make_shared<Exchange>(false), {x});
  Value two = h.add_one(std::make_shared<Exchange>(true), {x});
  h.output("sum", add(h, one, two));
  Plan both = make_plan(h, {});
  verify_plan(h, both);
  both.places[static_cast<size_t>(two.id)] = both.places[static_cast<size_t>(one.id)];
  EXPECT_THROW(verify_plan(h, both), InternalError);
}

// In place of its operand an exchange may write what it was given, and nothing else.
TEST_F(PlanVerifierInFlight, AcceptsAnExchangeInPlace) {
  Graph h;
  Value x = h.input("x", InputKind::kState, {{kN}, DType::kF32});
  Value given = unary(h, UnaryKind::kExp, x);
  h.output("y", h.add_one(std::make_shared<Exchange>(true), {given}));
  Plan in_place = make_plan(h, {});
  EXPECT_EQ(in_place.in_place, 1);
  verify_plan(h, in_place);
}

}  // namespace
}  // namespace tessera
