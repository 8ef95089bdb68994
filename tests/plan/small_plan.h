#pragma once
#include <gtest/gtest.h>

#include "ir/verifier.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "plan/plan.h"

namespace tessera {

// Small graphs over f32 vectors of kN elements, and their verified plans.
constexpr int64_t kN = 1024, kBytes = 4 * kN;

inline Value argument(Graph& g, const std::string& name, int64_t n = kN) {
  return g.input(name, InputKind::kArgument, {{n}, DType::kF32});
}
inline Value state(Graph& g, const std::string& name, int64_t n = kN) {
  return g.input(name, InputKind::kState, {{n}, DType::kF32});
}
inline Value neg(Graph& g, Value x) { return unary(g, UnaryKind::kNeg, x); }
inline Value flatten(Graph& g, int64_t size, std::vector<int64_t> offsets,
                     std::vector<Value> parts) {
  return g.add_one(std::make_shared<Flatten>(size, std::move(offsets)), std::move(parts));
}

inline Plan planned(const Graph& g, const PlanOptions& options = {},
                    const std::vector<int64_t>& workspaces = {}) {
  verify(g, "test");
  Plan plan = make_plan(g, workspaces, options);
  verify_plan(g, plan);
  EXPECT_GE(plan.arena_bytes, plan.live_peak_bytes);
  return plan;
}

}  // namespace tessera
