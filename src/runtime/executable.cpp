#include "runtime/executable.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

void add_declined(std::vector<Declined>& list, const Declined& more) {
  for (Declined& known : list) {
    if (known.op != more.op || known.reasons != more.reasons) continue;
    known.nodes += more.nodes;
    return;
  }
  list.push_back(more);
}

std::string to_string(const Declined& declined) {
  return cat(declined.op, " x ", declined.nodes, ": ", declined.reasons);
}

std::map<std::string, TensorType> slot_types(const Graph& graph) {
  std::map<std::string, TensorType> types;
  for (const GraphInput& input : graph.inputs())
    if (input.kind == InputKind::kState) types.emplace(input.name, graph.type(input.value));
  for (const StateUpdate& update : graph.updates())
    types.emplace(update.slot, graph.type(update.value));
  return types;
}

void Pending::wait() const {
  TESSERA_CHECK(executable_, "nothing was started");
  executable_->wait(run_);
}

void Pending::read_bytes(std::string_view output, DType dtype, std::span<std::byte> to) const {
  TESSERA_CHECK(executable_, "nothing was started");
  const Graph& graph = executable_->graph();
  for (size_t k = 0; k < graph.outputs().size(); ++k) {
    if (graph.outputs()[k].name != output) continue;
    const TensorType& type = graph.type(graph.outputs()[k].value);
    TESSERA_CHECK(type.dtype == dtype && type.bytes() == static_cast<int64_t>(to.size()),
                  cat("output ", output, " is ", to_string(type), ", ", to.size(), " bytes of ",
                      name(dtype), " are read"));
    executable_->wait(run_);
    return executable_->read_output(run_, k, to);
  }
  throw InternalError(cat("the program has no output '", output, "'"));
}

}  // namespace tessera
