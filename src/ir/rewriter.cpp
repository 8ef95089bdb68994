#include "ir/rewriter.h"

namespace tessera {

Rewriter::Rewriter(const Graph& from, Graph& to)
    : from_(from), to_(to), map_(static_cast<size_t>(from.num_values())) {}

std::vector<Value> Rewriter::operator()(std::span<const Value> values) const {
  std::vector<Value> mapped;
  for (Value v : values) mapped.push_back((*this)(v));
  return mapped;
}

void Rewriter::enter(const Node& node) {
  to_.set_scope(node.scope, node.layer);
  to_.set_phase(node.phase);
}

void Rewriter::copy(const Node& node) {
  enter(node);
  if (node.op->tier() == Tier::kInput) {
    if (const GraphInput* input = from_.input_of(node.outputs[0])) {
      map(input->value, to_.input(input->name, input->kind, from_.type(input->value)));
      return;
    }
  }
  std::vector<Value> outputs = to_.add(node.op, (*this)(node.inputs));
  for (size_t i = 0; i < outputs.size(); ++i) map(node.outputs[i], outputs[i]);
}

void Rewriter::finish() {
  to_.set_scope("");
  for (const GraphOutput& output : from_.outputs()) to_.output(output.name, (*this)(output.value));
  for (const StateUpdate& update : from_.updates()) to_.update(update.slot, (*this)(update.value));
}

}  // namespace tessera
