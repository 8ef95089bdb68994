#include "runtime/host_executable.h"

#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace tessera {

std::unique_ptr<HostExecutable> compile(const Graph& graph, const KernelTable& table,
                                        const PlanOptions& options) {
  PlannedProgram program = plan_program(graph, table, options);
  return std::make_unique<HostExecutable>(std::move(program.graph), std::move(program.plan),
                                          std::move(program.launches), std::move(program.declined));
}

HostExecutable::HostExecutable(Graph graph, Plan plan, std::vector<Launch> launches,
                               std::vector<Declined> declined)
    : graph_(std::move(graph)),
      plan_(std::move(plan)),
      launches_(std::move(launches)),
      declined_(std::move(declined)) {
  for (std::vector<Kept>& kept : kept_) kept.resize(graph_.outputs().size());
}

void HostExecutable::bind(State& any_state, Arenas& any_arenas) {
  auto* state = dynamic_cast<HostState*>(&any_state);
  auto* arenas = dynamic_cast<HostArenas*>(&any_arenas);
  TESSERA_CHECK(state && arenas, "state or arenas are not in host memory");
  TESSERA_CHECK(arenas->near().bytes() >= plan_.arena_bytes, "the arena is smaller than the plan");
  TESSERA_CHECK(arenas->far().bytes() >= plan_.far_arena_bytes,
                "the far arena is smaller than the plan");
  for (const auto& [slot, type] : slot_types(graph_)) state->declare(slot, type);
  addresses_ = PlanAddresses(graph_, plan_, [&](const Storage& storage) {
    const HostBuffer& arena = storage.tier == MemoryTier::kFar ? arenas->far() : arenas->near();
    return storage.external ? state->data(storage.external_name)
                            : arena.data() + storage.arena_offset;
  });
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
      launches_[i].run(addresses_.launch(i));
      // An observer sees results, so nothing runs beside it.
      if (observer && launches_[i].finish) launches_[i].finish();
      if (observer)
        (*observer)(
            {graph_, graph_.nodes()[i], addresses_.launch(i).outputs, monotonic_seconds() - start});
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
