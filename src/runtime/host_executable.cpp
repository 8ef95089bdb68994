#include "runtime/host_executable.h"

#include <cstring>

#include "base/clock.h"
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

std::unique_ptr<HostExecutable> compile(const Graph& graph, const KernelTable& table,
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
  return std::make_unique<HostExecutable>(std::move(expanded), std::move(plan), std::move(launches),
                                          std::move(declined));
}

HostExecutable::HostExecutable(Graph graph, Plan plan, std::vector<Launch> launches,
                               std::vector<Declined> declined)
    : graph_(std::move(graph)),
      plan_(std::move(plan)),
      launches_(std::move(launches)),
      declined_(std::move(declined)) {
  for (std::vector<Kept>& kept : kept_) kept.resize(graph_.outputs().size());
}

std::byte* HostExecutable::address(Place place) const {
  return storage_[static_cast<size_t>(place.storage)] + place.offset;
}

void HostExecutable::bind(State& any_state, Arenas& any_arenas) {
  auto* state = dynamic_cast<HostState*>(&any_state);
  auto* arenas = dynamic_cast<HostArenas*>(&any_arenas);
  TESSERA_CHECK(state && arenas, "state or arenas are not in host memory");
  TESSERA_CHECK(arenas->near().bytes() >= plan_.arena_bytes, "the arena is smaller than the plan");
  TESSERA_CHECK(arenas->far().bytes() >= plan_.far_arena_bytes,
                "the far arena is smaller than the plan");
  for (const auto& [slot, type] : slot_types(graph_)) state->declare(slot, type);
  storage_.clear();
  for (const Storage& storage : plan_.storages) {
    const HostBuffer& arena = storage.tier == MemoryTier::kFar ? arenas->far() : arenas->near();
    storage_.push_back(storage.external ? state->data(storage.external_name)
                                        : arena.data() + storage.arena_offset);
  }
  inputs_.clear();
  outputs_.clear();
  for (const Node& node : graph_.nodes()) {
    for (Value v : node.inputs) inputs_.push_back(address(v));
    for (Value v : node.outputs) outputs_.push_back(address(v));
  }
  ready_.clear();
  size_t in = 0, out = 0;
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Node& node = graph_.nodes()[i];
    int32_t scratch = plan_.workspaces[i];
    ready_.push_back({std::span(inputs_).subspan(in, node.inputs.size()),
                      std::span(outputs_).subspan(out, node.outputs.size()),
                      scratch < 0 ? nullptr : storage_[static_cast<size_t>(scratch)]});
    in += node.inputs.size();
    out += node.outputs.size();
  }
  bound_ = true;
}

void HostExecutable::take(const Arguments& arguments) {
  for (const GraphInput& input : graph_.inputs()) {
    if (input.kind != InputKind::kArgument) continue;
    auto given = arguments.find(input.name);
    TESSERA_CHECK(given != arguments.end() && given->second, cat("no argument '", input.name, "'"));
    std::memcpy(address(input.value), given->second,
                static_cast<size_t>(graph_.type(input.value).bytes()));
  }
}

Pending HostExecutable::start(const Arguments& arguments, const NodeObserver* observer) {
  TESSERA_CHECK(bound_, "run before bind");
  take(arguments);
  walk(observer);
  keep_small_outputs();
  return {*this, runs_++};
}

void HostExecutable::walk(const NodeObserver* observer) {
  for (RunListener* listener : listeners_) listener->begins(*this);
  for (size_t k = 0; k < plan_.instructions.size(); ++k) {
    const Instruction& instruction = plan_.instructions[k];
    const TimeSpan* exchange = nullptr;
    if (instruction.kind == InstructionKind::kCopy) {
      std::memmove(address(instruction.target), address(instruction.source),
                   static_cast<size_t>(instruction.bytes));
    } else if (instruction.kind == InstructionKind::kFill) {
      std::memset(address(instruction.target), 0, static_cast<size_t>(instruction.bytes));
    } else if (instruction.kind == InstructionKind::kWait) {
      const Launch& launch = launches_[static_cast<size_t>(instruction.node)];
      launch.finish();
      exchange = launch.exchanged.get();
    } else {
      auto i = static_cast<size_t>(instruction.node);
      double start = observer ? monotonic_seconds() : 0;
      launches_[i].run(ready_[i]);
      // An observer sees results, so nothing runs beside it.
      if (observer && launches_[i].finish) launches_[i].finish();
      if (observer)
        (*observer)({graph_, graph_.nodes()[i], ready_[i].outputs, monotonic_seconds() - start});
    }
    for (RunListener* listener : listeners_) listener->done(k, exchange);
  }
  for (RunListener* listener : listeners_) listener->ends();
}

void HostExecutable::keep_small_outputs() {
  std::vector<Kept>& kept = kept_[static_cast<size_t>(runs_ % kRunsKept)];
  for (size_t k = 0; k < kept.size(); ++k) {
    int64_t bytes = graph_.type(graph_.outputs()[k].value).bytes();
    if (bytes <= kSmallOutput)
      std::memcpy(kept[k].data(), address(plan_.outputs[k]), static_cast<size_t>(bytes));
  }
}

void HostExecutable::wait(int64_t run) {
  TESSERA_CHECK(run < runs_ && run >= runs_ - kRunsKept, "results of a run that is long over");
}

void HostExecutable::read_output(int64_t run, size_t output, std::span<std::byte> to) {
  const std::byte* from = kept_[static_cast<size_t>(run % kRunsKept)][output].data();
  if (std::ssize(to) > kSmallOutput) {
    TESSERA_CHECK(run == runs_ - 1, "a large output is read behind another run");
    from = address(plan_.outputs[output]);
  }
  std::memcpy(to.data(), from, to.size());
}

const void* HostExecutable::output(std::string_view name) const {
  for (size_t k = 0; k < graph_.outputs().size(); ++k) {
    if (graph_.outputs()[k].name == name) return address(plan_.outputs[k]);
  }
  throw InternalError(cat("the program has no output '", name, "'"));
}

}  // namespace tessera
