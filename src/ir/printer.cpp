#include "ir/printer.h"

namespace tessera {

std::string to_string(const Graph& graph, const Node& node) {
  std::string outputs;
  for (Value v : node.outputs) {
    outputs +=
        cat(outputs.empty() ? "" : ", ", "%", v.id, ":", to_string(graph.type(v), &graph.mesh()));
  }
  std::string inputs;
  for (Value v : node.inputs) inputs += cat(inputs.empty() ? "%" : ", %", v.id);
  std::string attributes = node.op->attributes();
  return cat(outputs, " = ", node.op->name(), attributes.empty() ? "" : cat("{", attributes, "}"),
             "(", inputs, ")  # ", node.scope, node.scope.empty() ? "" : " ", name(node.phase));
}

std::string place_text(const Node& node) {
  return cat(node.op->name(), node.scope.empty() ? "" : " in ", node.scope, " (", name(node.phase),
             ")");
}

std::string to_string(const Graph& graph) {
  std::string text;
  for (const Mesh::Axis& axis : graph.mesh().axes())
    text += cat("axis ", axis.name, " = ", axis.size, "\n");
  for (const Node& node : graph.nodes()) text += to_string(graph, node) + "\n";
  for (const GraphInput& input : graph.inputs())
    text += cat(name(input.kind), " ", input.name, " = %", input.value.id, "\n");
  for (const GraphOutput& output : graph.outputs())
    text += cat("output ", output.name, " = %", output.value.id, "\n");
  for (const StateUpdate& update : graph.updates())
    text += cat("update ", update.slot, " = %", update.value.id, "\n");
  return text;
}

}  // namespace tessera
