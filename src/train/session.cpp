#include "train/session.h"

#include <algorithm>
#include <limits>

#include "base/random.h"

namespace tessera {

Session::Session(Programs programs, const CompileFunction& compile)
    : programs_(std::move(programs)) {
  auto add = [&](const std::string& name, const Graph& graph) {
    if (!graph.nodes().empty()) compiled_.push_back({name, compile(graph)});
  };
  add("accumulate_first", programs_.accumulate_first);
  add("accumulate", programs_.accumulate);
  add("apply", programs_.apply);
  add("evaluate", programs_.evaluate);
  for (const FlatUnit& unit : programs_.units) {
    std::vector<int64_t> begin;
    for (const UnitMember& member : unit.members) begin.push_back(member.offset);
    segment_begin_.push_back(begin);
    segment_decay_.emplace_back(begin.size(), 0.0f);
  }
}

void Session::allocate() {
  Memory planned = planned_memory();
  arena_ = HostBuffer(planned.arena);
  far_arena_ = HostBuffer(planned.far_arena);
  for (const Program& p : compiled_) p.executable->declare_state(state_);
  for (const Program& p : compiled_) p.executable->bind(state_, arena_, far_arena_);
}

Session::Memory Session::planned_memory() const {
  Memory memory;
  memory.far_state = programs_.far_state;
  std::map<std::string, int64_t> slots;
  for (const Program& p : compiled_) {
    memory.arena = std::max(memory.arena, p.executable->plan().arena_bytes);
    memory.far_arena = std::max(memory.far_arena, p.executable->plan().far_arena_bytes);
    const Graph& g = p.executable->graph();
    for (const GraphInput& input : g.inputs()) {
      if (input.kind == InputKind::kState) slots[input.name] = g.type(input.value).bytes();
    }
    for (const StateUpdate& update : g.updates()) slots[update.slot] = g.type(update.value).bytes();
  }
  for (const auto& [slot, bytes] : slots) {
    if (slot.starts_with("weight."))
      memory.parameters += bytes;
    else if (slot.starts_with("moment"))
      memory.optimizer += bytes;
    else if (slot.starts_with("gradient."))
      memory.gradients += bytes;
    else
      memory.counters += bytes;
  }
  return memory;
}

void Session::initialize(uint64_t seed, ThreadPool& pool) {
  constexpr size_t kTile = 1 << 14;  // even: a pair of normals is never cut
  for (const Parameter& p : programs_.parameters) {
    std::span<float> values = parameter(p.name);
    if (p.init.kind != InitKind::kNormal) {
      std::ranges::fill(values, p.init.kind == InitKind::kOnes ? 1.0f : 0.0f);
      continue;
    }
    uint64_t stream = stream_of(p.name);
    auto tiles = static_cast<int64_t>((values.size() + kTile - 1) / kTile);
    pool.run(tiles, [&](int64_t tile, int) {
      size_t begin = static_cast<size_t>(tile) * kTile;
      size_t end = std::min(begin + kTile, values.size());
      for (size_t k = begin; k < end; k += 2) {
        auto pair = random_normal_pair(seed, stream, k / 2);
        values[k] = static_cast<float>(p.init.standard_deviation * pair[0]);
        if (k + 1 < end) values[k + 1] = static_cast<float>(p.init.standard_deviation * pair[1]);
      }
    });
  }
}

void Session::set_decay(double weight_decay, bool decay_all) {
  for (size_t u = 0; u < programs_.units.size(); ++u) {
    for (size_t k = 0; k < segment_decay_[u].size(); ++k) {
      const Parameter& p =
          programs_.parameters[static_cast<size_t>(programs_.units[u].parameters[k])];
      segment_decay_[u][k] = p.decay || decay_all ? static_cast<float>(weight_decay) : 0.0f;
    }
  }
}

void Session::accumulate(std::span<const MicroBatch> micro_batches, const NodeObserver* observer) {
  TESSERA_CHECK(allocated() && !micro_batches.empty());
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    Executable& executable = program(i == 0 ? "accumulate_first" : "accumulate");
    executable.run(
        {{"tokens", micro_batches[i].tokens.data()}, {"targets", micro_batches[i].targets.data()}},
        observer);
  }
}

StepResult Session::step(std::span<const MicroBatch> micro_batches, double learning_rate,
                         double max_norm, const NodeObserver* observer) {
  accumulate(micro_batches, observer);
  auto lr = static_cast<float>(learning_rate);
  auto limit = max_norm > 0 ? static_cast<float>(max_norm) : std::numeric_limits<float>::infinity();
  std::map<std::string, const void*> arguments{{"lr", &lr}, {"max_norm", &limit}};
  for (size_t u = 0; u < programs_.units.size(); ++u) {
    arguments[cat("segment_begin.", programs_.units[u].name)] = segment_begin_[u].data();
    arguments[cat("segment_decay.", programs_.units[u].name)] = segment_decay_[u].data();
  }
  Executable& apply = program("apply");
  apply.run(arguments, observer);
  return {apply.scalar<float>("loss"), apply.scalar<float>("gradient_norm"),
          apply.scalar<uint8_t>("ok") != 0, apply.scalar<int64_t>("token_count")};
}

std::pair<double, int64_t> Session::evaluate(MicroBatch batch) {
  Executable& executable = program("evaluate");
  executable.run({{"tokens", batch.tokens.data()}, {"targets", batch.targets.data()}});
  return {executable.scalar<float>("loss_sum"), executable.scalar<int64_t>("token_count")};
}

Executable& Session::program(const std::string& name) {
  for (Program& p : compiled_) {
    if (p.name == name) return *p.executable;
  }
  throw InternalError(cat("the session has no program '", name, "'"));
}

// A checkpoint is taken between steps: gradients and sums of the last step are not part of it.
// Tensors are saved by parameter, so that a file says what it holds and padding is in none.
std::vector<TensorBuffer> Session::checkpoint_buffers() {
  std::vector<TensorBuffer> buffers;
  for (const Parameter& p : programs_.parameters)
    buffers.push_back({p.name, DType::kF32, p.shape, parameter(p.name).data()});
  for (int which : {1, 2}) {
    for (const Parameter& p : programs_.parameters) {
      auto values =
          member(p.name, [which](const FlatUnit& unit) { return moment_slot(unit, which); });
      buffers.push_back({cat("moment", which, ".", p.name), DType::kF32, p.shape, values.data()});
    }
  }
  buffers.push_back({"optimizer_step", DType::kI64, {}, state_.data("optimizer_step")});
  return buffers;
}

std::vector<TensorView> Session::checkpoint_views() {
  std::vector<TensorView> views;
  for (const TensorBuffer& b : checkpoint_buffers())
    views.push_back({b.name, b.dtype, b.shape, b.data});
  return views;
}

std::span<float> Session::member(const std::string& name,
                                 const std::function<std::string(const FlatUnit&)>& slot) {
  for (const FlatUnit& unit : programs_.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      if (programs_.parameters[static_cast<size_t>(unit.parameters[k])].name != name) continue;
      return {state_.as<float>(slot(unit)) + unit.members[k].offset,
              static_cast<size_t>(num_elements(unit.members[k].shape))};
    }
  }
  throw InternalError(cat("no parameter '", name, "'"));
}

std::span<float> Session::parameter(const std::string& name) { return member(name, weight_slot); }
std::span<float> Session::gradient(const std::string& name) { return member(name, gradient_slot); }

}  // namespace tessera
