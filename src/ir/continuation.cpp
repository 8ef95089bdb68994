#include "ir/continuation.h"

namespace tessera {

std::vector<Value> Op::continue_sequence(Continuation& c) const { return c.same(); }

std::vector<Value> Continuation::same() {
  std::vector<Value> operands;
  for (size_t i = 0; i < node().inputs.size(); ++i) operands.push_back(operand(i));
  return graph().add(node().op, std::move(operands));
}

}  // namespace tessera
