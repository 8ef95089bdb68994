#include "runtime/planned_program.h"

#include "ir/printer.h"
#include "ir/rewriter.h"
#include "ir/verifier.h"

namespace tessera {
namespace {

bool storage_only(const Node& node) {
  return node.op->tier() == Tier::kInput || !node.op->view_offsets().empty() ||
         !node.op->placement_offsets().empty();
}

struct Types {
  std::vector<TensorType> inputs, outputs;
  Types(const Graph& graph, const Node& node) {
    for (Value v : node.inputs) inputs.push_back(graph.type(v));
    for (Value v : node.outputs) outputs.push_back(graph.type(v));
  }
};

Prepared prepare(const Graph& graph, const Node& node, const KernelTable& table) {
  Types types(graph, node);
  return table.prepare({*node.op, types.inputs, types.outputs, graph.mesh(), place_text(node)});
}

// Replaces composites that the table declines by their definition, until nothing is left to
// replace.
Graph decompose_declined(const Graph& graph, const KernelTable& table,
                         std::vector<Declined>& declined) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  bool changed = false;
  for (const Node& node : graph.nodes()) {
    if (node.op->tier() != Tier::kComposite) {
      rewriter.copy(node);
      continue;
    }
    Prepared prepared = prepare(graph, node, table);
    const auto* reasons = std::get_if<std::string>(&prepared);
    if (!reasons) {
      rewriter.copy(node);
      continue;
    }
    add_declined(declined, {std::string(node.op->name()), *reasons, 1});
    rewriter.enter(node);
    std::vector<Value> outputs = node.op->decompose(result, rewriter(node.inputs));
    TESSERA_CHECK(outputs.size() == node.outputs.size(),
                  cat("decomposition of ", to_string(graph, node)));
    for (size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
    changed = true;
  }
  rewriter.finish();
  return changed ? decompose_declined(result, table, declined) : result;
}

}  // namespace

PlannedProgram plan_program(const Graph& graph, const KernelTable& table,
                            const PlanOptions& options) {
  for (const GraphInput& input : graph.inputs()) {
    TESSERA_CHECK(input.kind != InputKind::kParameter,
                  cat("parameter '", input.name, "' must become state before a graph is compiled"));
  }
  std::vector<Declined> declined;
  Graph expanded = decompose_declined(graph, table, declined);
  verify(expanded, "decomposition");
  std::vector<Launch> launches;
  std::vector<int64_t> workspaces;
  for (const Node& node : expanded.nodes()) {
    Launch launch;
    if (!storage_only(node)) {
      Prepared prepared = prepare(expanded, node, table);
      if (!std::holds_alternative<Launch>(prepared)) {
        throw UserError(cat("this backend cannot run ", to_string(expanded, node), ": ",
                            std::get<std::string>(prepared)));
      }
      launch = std::move(std::get<Launch>(prepared));
    }
    workspaces.push_back(launch.workspace_bytes);
    launches.push_back(std::move(launch));
  }
  Plan plan = make_plan(expanded, workspaces, options);
  verify_plan(expanded, plan);
  return {std::move(expanded), std::move(plan), std::move(launches), std::move(declined)};
}

}  // namespace tessera
