#pragma once
#include <string>

#include "ir/graph.h"
#include "plan/plan.h"
#include "tests/base/error_expectation.h"

namespace tessera {

// What a plan has of a value, to look at and to spoil.
inline Place& place(Plan& plan, Value v) { return plan.places[static_cast<size_t>(v.id)]; }
inline Storage& storage_of(Plan& plan, Value v) {
  return plan.storages[static_cast<size_t>(place(plan, v).storage)];
}
// Of the first instruction of this kind for the node that makes the value.
inline size_t index_of(const Graph& g, const Plan& plan, InstructionKind kind, Value v) {
  size_t i = 0;
  while (i < plan.instructions.size() &&
         !(plan.instructions[i].kind == kind && plan.instructions[i].node == g.producer(v)))
    ++i;
  return i;
}

inline void expect_refused(const Graph& g, const Plan& plan, const std::string& part) {
  expect_contains(message_of<InternalError>([&] { verify_plan(g, plan); }), part);
}

}  // namespace tessera
