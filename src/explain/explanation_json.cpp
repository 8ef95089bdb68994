#include <nlohmann/json.hpp>

#include "explain/explanation.h"
#include "explain/node_search.h"
#include "explain/peak.h"
#include "ir/printer.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json sums_json(const std::vector<HeldSum>& sums) {
  Json all = Json::array();
  for (const HeldSum& sum : sums)
    all.push_back({{"name", sum.name}, {"bytes", sum.bytes}, {"buffers", sum.storages}});
  return all;
}

Json state_json(const Session& session) {
  Json all = Json::array();
  for (const StateMemory& state : state_memory(session))
    all.push_back({{"kind", state.kind},
                   {"dtype", std::string(name(state.dtype))},
                   {"parameters", state.parameters},
                   {"padding", state.padding},
                   {"pieces", state.pieces},
                   {"elements", state.elements},
                   {"bytes", state.bytes}});
  return all;
}

Json held_json(const Graph& graph, const std::vector<HeldStorage>& held) {
  auto place = [&](int32_t node) -> Json {
    if (node < 0) return nullptr;
    return place_text(graph.nodes()[static_cast<size_t>(node)]);
  };
  Json all = Json::array();
  for (const HeldStorage& one : held)
    all.push_back({{"bytes", one.bytes},
                   {"kind", one.category},
                   {"value", one.value ? Json(cat("%", one.value.id)) : Json()},
                   {"type", one.value ? Json(one.type) : Json()},
                   {"made_by", place(one.maker)},
                   {"read_last_by", place(one.reader)},
                   {"reason", one.reason}});
  return all;
}

Json peak_json(const Session::Program& program) {
  const Graph& graph = program.executable->graph();
  const Plan& plan = *program.executable->plan();
  Json around = Json::array();
  for (const InstructionMemory& memory : around_peak(graph, plan, 4))
    around.push_back({{"instruction", memory.number},
                      {"node", memory.node},
                      {"text", memory.text},
                      {"live", memory.live},
                      {"peak", memory.peak}});
  return {{"program", program.name},
          {"bytes", plan.live_peak_bytes},
          {"node", plan.peak_node},
          {"nodes", graph.nodes().size()},
          {"around", around},
          {"live", live_bytes(plan, static_cast<int32_t>(graph.nodes().size()))}};
}

Json kernels_json(const KernelUses& uses) {
  Json kernels = Json::array(), decomposed = Json::array();
  for (const KernelUse& use : uses.kernels)
    kernels.push_back({{"op", use.op},
                       {"kernel", use.kernel},
                       {"nodes", use.nodes},
                       {"launches", use.launches},
                       {"flops", use.flops},
                       {"workspace", use.workspace},
                       {"passed_over", use.passed_over}});
  for (const Declined& declined : uses.decomposed)
    decomposed.push_back(
        {{"op", declined.op}, {"nodes", declined.nodes}, {"reasons", declined.reasons}});
  return {{"flops", uses.flops}, {"kernels", kernels}, {"decomposed", decomposed}};
}

Json passes_json(const std::vector<PassChanges>& passes) {
  Json all = Json::array();
  for (const PassChanges& pass : passes) {
    Json kinds = Json::array();
    for (const ChangedNodes& kind : pass.kinds)
      kinds.push_back({{"change", std::string(name(kind.change))},
                       {"op", kind.op},
                       {"phase", std::string(name(kind.phase))},
                       {"nodes", kind.nodes},
                       {"places", kind.places}});
    all.push_back({{"program", pass.program},
                   {"pass", pass.pass},
                   {"seconds", pass.seconds},
                   {"nodes_before", pass.nodes_before},
                   {"nodes_after", pass.nodes_after},
                   {"added", pass.added},
                   {"removed", pass.removed},
                   {"changed", pass.changed},
                   {"kinds", kinds}});
  }
  return all;
}

Json nodes_json(const std::vector<FoundNode>& nodes) {
  Json all = Json::array();
  for (const FoundNode& node : nodes) {
    Json outputs = Json::array();
    for (const FoundNode::Output& output : node.outputs)
      outputs.push_back({{"value", output.value},
                         {"type", output.type},
                         {"place", output.place},
                         {"first", output.first},
                         {"last", output.last}});
    all.push_back({{"program", node.program},
                   {"node", node.number},
                   {"op", node.op},
                   {"scope", node.scope},
                   {"phase", node.phase},
                   {"kernel", node.kernel},
                   {"flops", node.flops},
                   {"workspace", node.workspace},
                   {"inputs", node.inputs},
                   {"outputs", outputs}});
  }
  return all;
}

}  // namespace

std::string Explanation::json(const std::vector<std::string>& topics) {
  Json all = Json::object();
  for (const std::string& topic : topics) {
    if (topic == "memory") {
      const Session::Memory& memory = plan_.memory;
      const Session::Program& program = largest();
      const Graph& graph = program.executable->graph();
      const Plan& plan = *program.executable->plan();
      const std::vector<HeldStorage> held = this->held();
      Json saved = Json::array();
      for (const Saving& saving : savings(job_.config, job_.model, job_.target, plan_))
        saved.push_back({{"options", saving.options},
                         {"near", saving.near},
                         {"far", saving.far},
                         {"flops", saving.flops},
                         {"other_results", saving.other_results}});
      all[topic] = {{"total", memory.total()},
                    {"near", memory.near()},
                    {"far", memory.far()},
                    {"state", state_json(*session_)},
                    {"arena",
                     {{"bytes", memory.arena},
                      {"far_bytes", memory.far_arena},
                      {"program", program.name},
                      {"live_peak", plan.live_peak_bytes},
                      {"peak_node", plan.peak_node}}},
                    {"by_kind", sums_json(held_by_category(held))},
                    {"by_op", sums_json(held_by_op(graph, held))},
                    {"by_place", sums_json(held_by_place(graph, held))},
                    {"held", held_json(graph, held)},
                    {"other_options", saved}};
    } else if (topic == "peak") {
      all[topic] = peak_json(largest());
    } else if (topic == "kernels") {
      all[topic] = kernels_json(kernel_uses(*session_, job_.config.gradient_accumulation_steps));
      Json& others = all[topic]["cpu_isa"] = Json::object();
      for (const OtherKernels& other : other_kernels()) {
        others[other.name] = kernels_json(other.uses);
        others[other.name]["arena"] = other.arena;
        others[other.name]["here"] = other.here;
      }
    } else if (topic == "passes") {
      all[topic] = passes_json(passes_);
    } else {
      all[topic] = nodes_json(find_nodes(*session_, topic));
    }
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
