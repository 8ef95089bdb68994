// The verifier and what ops declare: hand-overs of another size or result, views beyond an operand,
// results without elements.
#include <gtest/gtest.h>

#include "ops/composite/adamw.h"
#include "ops/primitive/elementwise.h"
#include "plan/plan.h"
#include "tests/plan/plan_places.h"

namespace tessera {
namespace {

constexpr int64_t kN = 256;

// Half as many elements, which it says may lie where its operand does.
class FirstHalf final : public OpOf<FirstHalf> {
 public:
  std::string_view name() const override { return "first_half"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {{{context.inputs[0].elements() / 2}, context.inputs[0].dtype}};
  }
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const { return std::make_tuple(); }
};

TEST(PlanVerifierOps, RefusesAHandOverOfAnotherSize) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{kN}, DType::kF32});
  Value whole = unary(g, UnaryKind::kNeg, x);
  Value half = g.add_one(std::make_shared<FirstHalf>(), {whole});
  g.output("half", half);
  Plan plan = make_plan(g, {});
  verify_plan(g, plan);
  Place operand = plan.places[static_cast<size_t>(whole.id)];
  plan.places[static_cast<size_t>(half.id)] = plan.outputs[0] = operand;
  expect_refused(g, plan, "undeclared in-place: ");
}

// A view of as many elements as its operand that begins in the middle of it.
class ViewBeyond final : public OpOf<ViewBeyond> {
 public:
  std::string_view name() const override { return "view_beyond"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0]};
  }
  std::vector<int64_t> view_offsets() const override { return {kN / 2}; }
  auto fields() const { return std::make_tuple(); }
};

TEST(PlanVerifierOps, RefusesAViewBeyondItsOperand) {
  Graph g;
  Value x = g.input("x", InputKind::kState, {{kN}, DType::kF32});
  Value whole = unary(g, UnaryKind::kNeg, x);
  g.output("view", g.add_one(std::make_shared<ViewBeyond>(), {whole}));
  Plan plan;
  plan.storages = {{.bytes = 4 * kN, .external = true, .external_name = "x"},
                   {.bytes = 8 * kN, .arena_offset = 0}};
  plan.arena_bytes = 8 * kN;
  plan.places = {{0, 0}, {1, 0}, {1, 2 * kN}};
  plan.outputs = {{1, 2 * kN}};
  plan.instructions = {{.kind = InstructionKind::kLaunch, .node = g.producer(whole)}};
  expect_refused(g, plan, "output view: bytes of %2 hold nothing at 512");
}

TEST(PlanVerifierOps, AcceptsAValueWithoutBytesAnywhere) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{kN}, DType::kF32});
  Value none = g.input("none", InputKind::kArgument, {{0}, DType::kF32});
  Value negative = unary(g, UnaryKind::kNeg, x), nothing = unary(g, UnaryKind::kNeg, none);
  g.output("negative", negative);
  g.output("nothing", nothing);
  Plan plan = make_plan(g, {});
  auto storage = [&](Value v) -> Storage& {
    return plan.storages[static_cast<size_t>(plan.places[static_cast<size_t>(v.id)].storage)];
  };
  storage(nothing).arena_offset = storage(negative).arena_offset;
  verify_plan(g, plan);
}

TEST(PlanVerifierOps, RefusesAHandOverToAnotherResult) {
  Graph g;
  TensorType vector{{kN}, DType::kF32}, scalar{{}, DType::kF32};
  std::vector<Value> operands;
  for (const char* name : {"weight", "mean", "variance", "gradient"})
    operands.push_back(unary(g, UnaryKind::kNeg, g.input(name, InputKind::kArgument, vector)));
  auto argument = [&](const char* name, TensorType type) {
    operands.push_back(g.input(name, InputKind::kArgument, std::move(type)));
  };
  argument("lr", scalar);
  argument("scale", scalar);
  argument("ok", {{}, DType::kBool});
  argument("step", {{}, DType::kI64});
  argument("begin", {{1}, DType::kI64});
  argument("decay", {{1}, DType::kF32});
  auto results = g.add(std::make_shared<AdamW>(0.9, 0.9, 1e-8), operands);
  g.output("weight", results[0]);
  g.output("mean", results[1]);
  Plan plan = make_plan(g, {});
  verify_plan(g, plan);
  auto place = [&](Value v) -> Place& { return plan.places[static_cast<size_t>(v.id)]; };
  std::swap(place(results[0]), place(results[1]));
  std::swap(plan.outputs[0], plan.outputs[1]);
  expect_refused(g, plan, "undeclared in-place: ");
}

}  // namespace
}  // namespace tessera
