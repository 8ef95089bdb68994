#include "profile/live_memory.h"

#include <algorithm>

#include "profile/instruction_text.h"

namespace tessera {
namespace {

bool counts(const Storage& storage) {
  return !storage.external && storage.tier == MemoryTier::kNear;
}

}  // namespace

std::vector<int64_t> live_bytes(const Graph& graph, const Plan& plan) {
  const size_t nodes = graph.nodes().size();
  std::vector<int64_t> live(nodes + 2, 0);
  for (const Storage& storage : plan.storages) {
    if (!counts(storage)) continue;
    live[static_cast<size_t>(storage.first)] += buffer_room(storage.bytes);
    live[static_cast<size_t>(storage.last) + 1] -= buffer_room(storage.bytes);
  }
  for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  live.resize(nodes);
  return live;
}

std::vector<LiveBuffer> live_at_peak(const Graph& graph, const Plan& plan, size_t most) {
  // The largest value of a storage gives it its name; views are what they look at.
  std::vector<Value> named(plan.storages.size());
  for (int32_t id = 0; id < graph.num_values(); ++id) {
    const Value v{id};
    const Node& maker = graph.nodes()[static_cast<size_t>(graph.producer(v))];
    if (!maker.op->view_offsets().empty()) continue;
    Value& name = named[static_cast<size_t>(plan.places[static_cast<size_t>(id)].storage)];
    if (!name || graph.type(name).bytes() < graph.type(v).bytes()) name = v;
  }
  std::vector<LiveBuffer> buffers;
  for (size_t s = 0; s < plan.storages.size(); ++s) {
    const Storage& storage = plan.storages[s];
    if (!counts(storage) || storage.first > plan.peak_node || storage.last < plan.peak_node)
      continue;
    std::string name = "a copy of a result";
    if (storage.workspace_of >= 0)
      name = cat("workspace of ",
                 place_text(graph.nodes()[static_cast<size_t>(storage.workspace_of)]));
    else if (const GraphInput* input = named[s] ? graph.input_of(named[s]) : nullptr)
      name = cat("argument ", input->name, " ", to_string(graph.type(named[s])));
    else if (named[s])
      name = cat(place_text(graph.nodes()[static_cast<size_t>(graph.producer(named[s]))]), " ",
                 to_string(graph.type(named[s])));
    buffers.push_back({std::move(name), buffer_room(storage.bytes)});
  }
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  if (buffers.size() <= most) return buffers;
  LiveBuffer rest{cat(buffers.size() - most, " others"), 0};
  for (size_t i = most; i < buffers.size(); ++i) rest.bytes += buffers[i].bytes;
  buffers.resize(most);
  buffers.push_back(std::move(rest));
  return buffers;
}

}  // namespace tessera
