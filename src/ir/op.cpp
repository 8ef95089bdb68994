#include "ir/op.h"

#include "ir/graph.h"

namespace tessera {

std::string_view name(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kGather: return "gather";
    case Lane::kReduce: return "reduce";
    case Lane::kCopy: return "copy";
  }
  return "?";
}

Lane Op::lane() const {
  std::optional<Communication> exchange = communication();
  if (!exchange) return Lane::kCompute;
  bool gathers = exchange->traffic == Traffic::kGather || exchange->traffic == Traffic::kAllToAll;
  return gathers ? Lane::kGather : Lane::kReduce;
}

std::vector<Value> Op::vjp(const VjpContext& context) const {
  throw InternalError(cat("op ", name(), " has no gradient (", context.node.scope, ")"));
}

OpPtr Op::adding(int) const { return nullptr; }

std::vector<Value> VjpContext::add(size_t input, DType dtype, const OpPtr& op,
                                   std::vector<Value> operands) const {
  const OpPtr adding = op->adding(0);
  const Value sum = adding && needed[input] ? take_sum(input, dtype) : Value{};
  if (sum) operands.push_back(sum);
  return graph.add(sum ? adding : op, std::move(operands));
}

std::vector<Value> Op::decompose(Graph&, std::span<const Value>) const {
  throw InternalError(cat("op ", name(), " has no decomposition"));
}

Cost Op::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Cost cost;
  for (const TensorType& t : inputs) cost.bytes += static_cast<double>(t.bytes());
  for (const TensorType& t : outputs) {
    cost.bytes += static_cast<double>(t.bytes());
    cost.flops += static_cast<double>(t.elements());
  }
  return cost;
}

std::vector<std::pair<int, int>> Op::subsumes(const Op&) const { return {}; }

void detail::refuse(const Op& op, const char* label, const std::string& message) {
  throw UserError(cat("[", op.name(), "] (", label, ") ", message));
}

void require_sum(const Op& op, const char* label, const TensorType& sum, const TensorType& result) {
  require(sum.shape == result.shape && sum.dtype == result.dtype, op, label,
          "the operand that it adds to must be like the result: ", sum, " and ", result);
}

std::string to_string(const TensorType& type, const Mesh* mesh) {
  std::string marks;
  if (!type.varying.empty())
    marks = mesh ? mesh->to_string(type.varying) : cat("{", type.varying.bits, "}");
  return cat(name(type.dtype), to_string(type.shape), marks);
}

}  // namespace tessera
