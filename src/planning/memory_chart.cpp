#include "planning/memory_chart.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Texts that occur often, by number.
class Texts {
 public:
  size_t number(const std::string& text) {
    auto [place, added] = numbers_.try_emplace(text, numbers_.size());
    if (added) all_.push_back(text);
    return place->second;
  }
  const Json& all() const { return all_; }

 private:
  std::map<std::string, size_t> numbers_;
  Json all_ = Json::array();
};

std::string op_label(const Node& node) {
  return cat(node.op->name(), node.scope.empty() ? "" : " in ", node.scope);
}

// {name, nodes, arena, far_arena, peak, peak_node, live: [bytes by node], ops: [text by node],
//  storages: [[first, last, offset, bytes, far, category, layer, op, type]]}; ops, categories and
// types as numbers of texts, layer -1 where it belongs to none.
Json program_data(const Session::Program& program, Texts& texts) {
  const Graph& graph = program.executable->graph();
  const Plan& plan = *program.executable->plan();
  const auto nodes = static_cast<int32_t>(graph.nodes().size());
  Json data{{"name", program.name},           {"nodes", nodes},
            {"arena", plan.arena_bytes},      {"far_arena", plan.far_arena_bytes},
            {"peak", plan.live_peak_bytes},   {"peak_node", plan.peak_node},
            {"live", live_bytes(plan, nodes)}};
  Json& ops = data["ops"] = Json::array();
  for (const Node& node : graph.nodes())
    ops.push_back(texts.number(cat(op_label(node), " (", name(node.phase), ")")));
  Json& storages = data["storages"] = Json::array();
  const std::vector<StorageUse> uses = storage_uses(graph, plan);
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    const Storage& storage = plan.storages[s];
    if (storage.external || storage.bytes == 0) continue;
    const StorageUse& use = uses[s];
    const Node* node = use.node < 0 ? nullptr : &graph.nodes()[static_cast<size_t>(use.node)];
    storages.push_back(
        {storage.first, storage.last, storage.arena_offset, storage.bytes,
         storage.tier == MemoryTier::kFar ? 1 : 0, texts.number(use.category),
         node ? node->layer : kNoLayer, texts.number(node ? op_label(*node) : ""),
         texts.number(use.value.id < 0 ? "" : to_string(graph.type(use.value), &graph.mesh()))});
  }
  return data;
}

}  // namespace

std::string memory_chart(const Session& session, std::string_view title) {
  const Session::Memory memory = session.planned_memory();
  Texts texts;
  Json programs = Json::array();
  for (const Session::Program& program : session.compiled())
    if (program.executable->plan()) programs.push_back(program_data(program, texts));
  const Json data{{"programs", programs},
                  {"state", Json::array({Json::array({"parameters", memory.parameters}),
                                         Json::array({"compute weights", memory.compute_weights}),
                                         Json::array({"optimizer", memory.optimizer}),
                                         Json::array({"gradients", memory.gradients}),
                                         Json::array({"counters", memory.counters})})},
                  {"arena", memory.arena},
                  {"total", memory.total()},
                  {"texts", texts.all()}};
  std::string json = data.dump(), safe;
  // Inside a script of a page.
  for (const char c : json) c == '<' ? safe += "\\u003c" : safe += c;
  return memory_chart_page(title, safe);
}

}  // namespace tessera
