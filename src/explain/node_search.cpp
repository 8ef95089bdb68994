#include "explain/node_search.h"

#include <algorithm>
#include <set>

#include "programs/step_costs.h"

namespace tessera {
namespace {

std::string value_name(Value v) { return cat("%", v.id); }

bool is_named(const Node& node, const std::string& word) {
  if (word.starts_with('%')) {
    auto named = [&](Value v) { return value_name(v) == word; };
    return std::ranges::any_of(node.outputs, named) || std::ranges::any_of(node.inputs, named);
  }
  return node.op->name() == word || node.scope == word || node.scope.starts_with(word + ".");
}

std::string place_of(const Plan& plan, Value v) {
  const Place& place = plan.places[static_cast<size_t>(v.id)];
  const Storage& storage = plan.storages[static_cast<size_t>(place.storage)];
  if (storage.external) return cat("slot ", storage.external_name, " + ", place.offset);
  return cat(storage.tier == MemoryTier::kFar ? "far arena " : "arena ",
             storage.arena_offset + place.offset);
}

FoundNode found_node(const Session::Program& program, size_t i) {
  const Executable& executable = *program.executable;
  const Graph& graph = executable.graph();
  const Node& node = graph.nodes()[i];
  FoundNode found{.program = program.name,
                  .number = static_cast<int32_t>(i),
                  .op = std::string(node.op->name()),
                  .scope = node.scope,
                  .phase = std::string(name(node.phase)),
                  .kernel = executable.kernel(i)};
  const Plan* plan = executable.plan();
  for (Value v : node.inputs) found.inputs.push_back(value_name(v));
  for (Value v : node.outputs) {
    FoundNode::Output output{value_name(v), to_string(graph.type(v), &graph.mesh()), "", 0, 0};
    if (plan) {
      const auto storage = static_cast<size_t>(plan->places[static_cast<size_t>(v.id)].storage);
      output.place = place_of(*plan, v);
      output.first = plan->storages[storage].first;
      output.last = plan->storages[storage].last;
    }
    found.outputs.push_back(std::move(output));
  }
  if (plan && plan->workspaces[i] >= 0)
    found.workspace = plan->storages[static_cast<size_t>(plan->workspaces[i])].bytes;
  found.flops = node_cost(graph, node).flops;
  return found;
}

[[noreturn]] void refuse(const Session& session, const std::string& word) {
  std::set<std::string> names{"memory", "peak", "kernels", "passes"};
  for (const Session::Program& program : session.compiled()) {
    for (const Node& node : program.executable->graph().nodes()) {
      names.emplace(node.op->name());
      // "layers", "layers.3", "layers.3.attn"
      for (size_t end = 0; !node.scope.empty() && end != node.scope.npos;) {
        end = node.scope.find('.', end == 0 ? 0 : end + 1);
        names.insert(node.scope.substr(0, end));
      }
    }
  }
  const std::string close =
      word.size() <= 100 ? nearest(word, std::vector(names.begin(), names.end())) : "";
  throw UserError(cat("no program has an op, a scope or a value '", word.substr(0, 100), "'",
                      close.empty() ? "." : cat("; did you mean '", close, "'?"),
                      " Scopes are such as layers.0.attn, values such as %12 (--dump_pass shows "
                      "all), and memory, peak, kernels and passes explain the whole job"));
}

}  // namespace

std::vector<FoundNode> find_nodes(const Session& session, const std::string& word) {
  std::vector<FoundNode> found;
  for (const Session::Program& program : session.compiled()) {
    const std::vector<Node>& nodes = program.executable->graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i)
      if (is_named(nodes[i], word)) found.push_back(found_node(program, i));
  }
  if (found.empty()) refuse(session, word);
  return found;
}

std::string found_nodes_text(const std::string& word, const std::vector<FoundNode>& nodes) {
  std::string text = cat("Nodes of ", word, ": ", nodes.size(), "\n");
  std::string program;
  for (const FoundNode& node : nodes) {
    if (node.program != program) text += cat("\n", program = node.program, "\n");
    text +=
        format("  %5d  %s%s (%s)%s%s%s\n", node.number, node.op.c_str(),
               node.scope.empty() ? "" : cat(" in ", node.scope).c_str(), node.phase.c_str(),
               node.kernel.empty() ? "" : cat(": kernel ", node.kernel).c_str(),
               node.flops > 0 ? format(", %.4g FLOP", node.flops).c_str() : "",
               node.workspace > 0 ? cat(", scratch ", format_bytes(node.workspace)).c_str() : "");
    for (const FoundNode::Output& output : node.outputs)
      text += cat("           ", output.value, ": ", output.type,
                  output.place.empty() ? ""
                  : output.place.starts_with("slot")
                      ? cat("  ", output.place)
                      : cat("  ", output.place, ", nodes ", output.first, " to ", output.last),
                  "\n");
    if (!node.inputs.empty()) text += cat("           reads ", join(node.inputs, " "), "\n");
  }
  return text;
}

}  // namespace tessera
