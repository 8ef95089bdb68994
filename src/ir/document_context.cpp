#include "ir/document_context.h"

namespace tessera {

std::vector<Value> Op::restart_at_documents(DocumentContext& c) const { return c.same(); }

std::vector<Value> DocumentContext::operands() {
  std::vector<Value> operands;
  for (size_t i = 0; i < node().inputs.size(); ++i) operands.push_back(operand(i));
  return operands;
}

std::vector<Value> DocumentContext::same() { return graph().add(node().op, operands()); }

}  // namespace tessera
