#include "ir/graph.h"

#include <algorithm>

#include "ir/marks.h"

namespace tessera {

std::string_view name(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kRecompute: return "recompute";
    case Phase::kOptimizer: return "optimizer";
  }
  return "?";
}

std::string_view name(InputKind kind) {
  switch (kind) {
    case InputKind::kParameter: return "parameter";
    case InputKind::kState: return "state";
    case InputKind::kArgument: return "argument";
  }
  return "?";
}

bool is_added(const Node& node, int output) {
  const OpPtr adding = node.op->adding(output);
  return adding && *adding == *node.op;
}

Value Graph::vary(Value v, AxisSet axes) {
  auto made = varied_.find({v, axes.bits});
  return made != varied_.end() ? made->second : tessera::vary(*this, v, axes);
}

namespace {

void require_addressable(const Op& op, const TensorType& type) {
  if (type.elements() > kMaxTensorBytes / size_of(type.dtype)) {
    throw UserError(cat("[", op.name(), "] ", to_string(type), " would take more than ",
                        format_bytes(kMaxTensorBytes),
                        ": lower the batch, the context or the size of the model"));
  }
}

}  // namespace

std::vector<Value> Graph::add(const OpPtr& op, std::vector<Value> inputs) {
  TESSERA_CHECK(
      op->arity() == Op::kAnyNumber || std::ssize(inputs) == op->arity(),
      cat(op->name(), " takes ", op->arity(), " operands, got ", inputs.size(), " (", scope_, ")"));
  AxisSet joined;
  for (Value v : inputs) {
    TESSERA_CHECK(v.id >= 0 && v.id < num_values(),
                  cat(op->name(), " uses no value (", scope_, ")"));
    joined = joined | type(v).varying;
  }
  if (!op->sets_marks()) {
    for (Value& v : inputs) {
      // Integers have no cotangent, so nothing would be gained by a node for them.
      AxisSet missing = joined - type(v).varying;
      if (!missing.empty() && is_float(type(v).dtype)) v = vary(v, missing);
    }
  }
  std::vector<TensorType> input_types;
  input_types.reserve(inputs.size());
  for (Value v : inputs) input_types.push_back(type(v));
  std::vector<TensorType> output_types;
  try {
    output_types = op->infer({input_types, mesh_});
    for (const TensorType& t : output_types) require_addressable(*op, t);
  } catch (const UserError& error) {
    throw UserError(scope_.empty() ? std::string(error.what())
                                   : cat(error.what(), " (", scope_, ")"));
  }
  Node node{
      .op = op, .inputs = std::move(inputs), .scope = scope_, .layer = layer_, .phase = phase_};
  for (TensorType& t : output_types) {
    if (!op->sets_marks()) t.varying = joined;
    node.outputs.push_back({num_values()});
    types_.push_back(std::move(t));
    producers_.push_back(static_cast<int32_t>(nodes_.size()));
  }
  // Also one that a caller or a copy of the graph asked for is the one for its value.
  if (auto* vary_op = dynamic_cast<const VaryOp*>(op.get())) {
    varied_.try_emplace({node.inputs[0], vary_op->axes().bits}, node.outputs[0]);
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

Value Graph::add_one(const OpPtr& op, std::vector<Value> inputs) {
  std::vector<Value> outputs = add(op, std::move(inputs));
  TESSERA_CHECK(outputs.size() == 1, std::string(op->name()));
  return outputs[0];
}

Value Graph::input(std::string input_name, InputKind kind, TensorType type) {
  TESSERA_CHECK(!find_input(input_name), cat("input '", input_name, "' exists"));
  Value v = add_one(std::make_shared<InputOp>(input_name, std::move(type)), {});
  inputs_by_name_.emplace(input_name, inputs_.size());
  inputs_by_value_.emplace(v, inputs_.size());
  inputs_.push_back({std::move(input_name), kind, v});
  return v;
}

void Graph::output(std::string output_name, Value value) {
  outputs_.push_back({std::move(output_name), value});
}
void Graph::update(std::string slot, Value value) {
  updated_slots_.insert(slot);
  update_values_.insert(value);
  updates_.push_back({std::move(slot), value});
}

Value Graph::find_input(const std::string& input_name) const {
  auto found = inputs_by_name_.find(input_name);
  return found == inputs_by_name_.end() ? Value{} : inputs_[found->second].value;
}

const GraphInput* Graph::input_of(Value v) const {
  auto found = inputs_by_value_.find(v);
  return found == inputs_by_value_.end() ? nullptr : &inputs_[found->second];
}

Value Graph::input_value(const std::string& input_name) const {
  Value v = find_input(input_name);
  TESSERA_CHECK(v, cat("the graph has no input '", input_name, "'"));
  return v;
}

}  // namespace tessera
