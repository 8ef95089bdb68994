#include "train/session.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/hash.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/printer.h"
#include "train/job_slots.h"
#include "train/shard_pieces.h"

namespace tessera {
namespace {

// Elements of a parameter as its Init says, wherever they lie.
void draw(const Init& init, uint64_t seed, uint64_t stream, const PieceRange& range,
          float* weights) {
  float* out = weights + range.local;
  if (init.kind != InitKind::kNormal) {
    std::fill(out, out + range.count, init.kind == InitKind::kOnes ? 1.0f : 0.0f);
    return;
  }
  int64_t end = range.global + range.count;
  for (int64_t pair = range.global / 2; 2 * pair < end; ++pair) {
    auto normals = random_normal_pair(seed, stream, static_cast<uint64_t>(pair));
    for (int64_t element : {2 * pair, 2 * pair + 1}) {
      if (element >= range.global && element < end)
        out[element - range.global] =
            static_cast<float>(init.standard_deviation * normals[static_cast<size_t>(element & 1)]);
    }
  }
}

}  // namespace

Session::Session(Programs programs, const CompileFunction& compile, int rank)
    : programs_(std::move(programs)), rank_(rank) {
  auto add = [&](const std::string& name, const Graph& graph) {
    if (!graph.nodes().empty()) compiled_.push_back({name, compile(graph)});
  };
  add("accumulate_first", programs_.accumulate_first);
  add("accumulate", programs_.accumulate);
  add("apply", programs_.apply);
  add("evaluate", programs_.evaluate);
  const Parallelism& parallelism = programs_.parallelism;
  for (const FlatUnit& unit : programs_.units) {
    segment_begin_.push_back(
        segment_begin(unit, parallelism.mesh.index(rank, parallelism.data.shard)));
    segment_decay_.emplace_back(unit.members.size(), 0.0f);
    if (!unit.trainable) continue;
    update_arguments_[cat("segment_begin.", unit.name)] = segment_begin_.back().data();
    update_arguments_[cat("segment_decay.", unit.name)] = segment_decay_.back().data();
  }
}

uint64_t Session::plan_hash() const {
  uint64_t hash = 0;
  for (const Program& p : compiled_) {
    std::string text = to_string(p.executable->graph());
    for (const Instruction& step : p.executable->plan().instructions) {
      if (step.kind == InstructionKind::kLaunch || step.kind == InstructionKind::kWait)
        text += cat(static_cast<int>(step.kind), " ", step.node, "\n");
    }
    hash = hash_combine(hash, hash_text(text));
  }
  return hash;
}

std::vector<Declined> Session::declined() const {
  std::vector<Declined> all;
  for (const Program& p : compiled_) {
    for (const Declined& declined : p.executable->declined()) add_declined(all, declined);
  }
  return all;
}

void Session::allocate(const MakeBuffer& make_arena) {
  Memory planned = planned_memory();
  arena_ = make_arena(planned.arena);
  far_arena_ = HostBuffer(planned.far_arena);
  for (const Program& p : compiled_) p.executable->declare_state(state_);
  for (const Program& p : compiled_) p.executable->bind(state_, arena_, far_arena_);
  if (programs_.loss_scaling)
    set_loss_scale({static_cast<float>(programs_.loss_scaling->initial), 0});
}

std::optional<LossScaleState> Session::loss_scale() {
  if (!programs_.loss_scaling) return std::nullopt;
  return LossScaleState{*state_.as<float>(kLossScale), *state_.as<int64_t>(kGoodSteps)};
}

void Session::set_loss_scale(const LossScaleState& scale) {
  *state_.as<float>(kLossScale) = scale.scale;
  *state_.as<int64_t>(kGoodSteps) = scale.good_steps;
}

Session::Memory Session::planned_memory() const {
  Memory memory;
  memory.far_state = programs_.far_state;
  std::map<std::string, int64_t> slots;
  for (const Program& p : compiled_) {
    memory.arena = std::max(memory.arena, p.executable->plan().arena_bytes);
    memory.far_arena = std::max(memory.far_arena, p.executable->plan().far_arena_bytes);
    slots.merge(p.executable->state_bytes());
  }
  TESSERA_CHECK(slots.size() == programs_.slots.size(), "a slot is not in the list");
  for (const Slot& slot : programs_.slots) {
    int64_t bytes = slots.at(slot.name());
    switch (slot.role) {
      case SlotRole::kWeight: memory.parameters += bytes; break;
      case SlotRole::kOptimizer: memory.optimizer += bytes; break;
      case SlotRole::kGradient: memory.gradients += bytes; break;
      case SlotRole::kScalar: memory.counters += bytes; break;
    }
  }
  return memory;
}

void Session::initialize(uint64_t seed, ThreadPool& pool) {
  constexpr int64_t kTile = 1 << 14;
  for (const FlatUnit& unit : programs_.units) {
    auto* weights = state_.as<float>(weight_slot(unit));
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = programs_.parameters[static_cast<size_t>(unit.parameters[k])];
      std::vector<PieceRange> tiles;
      for (const PieceRange& range : piece_ranges(programs_, unit, k, rank_)) {
        for (int64_t at = 0; at < range.count; at += kTile) {
          tiles.push_back({range.global + at, range.local + at, std::min(kTile, range.count - at)});
        }
      }
      uint64_t stream = stream_of(p.name);
      pool.run(static_cast<int64_t>(tiles.size()), [&](int64_t tile, int) {
        draw(p.init, seed, stream, tiles[static_cast<size_t>(tile)], weights);
      });
    }
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
    const MicroBatch& m = micro_batches[i];
    batch_arguments_["tokens"] = m.tokens.data();
    batch_arguments_["targets"] = m.targets.data();
    batch_arguments_["row_keys"] = m.row_keys.data();
    executable.run(batch_arguments_, observer);
  }
}

StepResult Session::step(std::span<const MicroBatch> micro_batches, double learning_rate,
                         double max_norm, const NodeObserver* observer) {
  accumulate(micro_batches, observer);
  auto lr = static_cast<float>(learning_rate);
  auto limit = max_norm > 0 ? static_cast<float>(max_norm) : std::numeric_limits<float>::infinity();
  update_arguments_["lr"] = &lr;
  update_arguments_["max_norm"] = &limit;
  Executable& apply = program("apply");
  apply.run(update_arguments_, observer);
  StepResult result;
  result.loss = apply.scalar<float>("loss");
  if (programs_.has_z_loss) result.z_loss = apply.scalar<float>("z_loss");
  result.gradient_norm = apply.scalar<float>("gradient_norm");
  if (programs_.loss_scaling) result.loss_scale = apply.scalar<float>("loss_scale");
  result.ok = apply.scalar<uint8_t>("ok") != 0;
  result.tokens = apply.scalar<int64_t>("token_count");
  return result;
}

std::pair<double, int64_t> Session::evaluate(MicroBatch batch) {
  Executable& executable = program("evaluate");
  batch_arguments_["tokens"] = batch.tokens.data();
  batch_arguments_["targets"] = batch.targets.data();
  executable.run(batch_arguments_);
  return {executable.scalar<float>("loss_sum"), executable.scalar<int64_t>("token_count")};
}

Executable& Session::program(std::string_view name) {
  for (Program& p : compiled_) {
    if (p.name == name) return *p.executable;
  }
  throw InternalError(cat("the session has no program '", name, "'"));
}

// The slots of a unit of which checkpoints hold the parameters' parts, in the order of the list.
std::vector<const Slot*> Session::saved_slots(const FlatUnit& unit) const {
  std::vector<const Slot*> slots;
  for (const Slot& slot : programs_.slots)
    if (slot.saved && slot.unit == unit.name) slots.push_back(&slot);
  return slots;
}

// Tensors are saved by parameter, so that a file says what it holds and padding is in none. A rank
// that has pieces saves them flat, for the same mesh.
std::vector<TensorBuffer> Session::checkpoint_buffers() {
  std::vector<TensorBuffer> buffers;
  if (programs_.parallelism.mesh.world_size() > 1)
    add_pieces(buffers);
  else
    add_parameters(buffers);
  for (const Slot& slot : programs_.slots) {
    if (!slot.saved || slot.role != SlotRole::kScalar) continue;
    buffers.push_back(
        {slot.tensor_name(), slot.type.dtype, slot.type.shape, state_.data(slot.name())});
  }
  return buffers;
}

void Session::add_pieces(std::vector<TensorBuffer>& buffers) {
  for (const FlatUnit& unit : programs_.units) {
    const std::vector<const Slot*> slots = saved_slots(unit);
    for (size_t k = 0; k < unit.members.size(); ++k) {
      // Consecutive in the rank's own memory, whatever they are in the whole parameter.
      std::vector<PieceRange> ranges = piece_ranges(programs_, unit, k, rank_);
      if (ranges.empty()) continue;
      int64_t begin = ranges.front().local, end = ranges.back().local + ranges.back().count;
      const std::string& name = programs_.parameters[static_cast<size_t>(unit.parameters[k])].name;
      for (const Slot* slot : slots) {
        buffers.push_back({slot->tensor_name(name),
                           DType::kF32,
                           {end - begin},
                           state_.as<float>(slot->name()) + begin});
      }
    }
  }
}

// All weights first, then what else is saved of each.
void Session::add_parameters(std::vector<TensorBuffer>& buffers) {
  for (size_t k = 0, found = 1; found > 0; ++k) {
    found = 0;
    for (const Parameter& p : programs_.parameters) {
      auto [unit, member] = place(p.name);
      const std::vector<const Slot*> slots = saved_slots(*unit);
      if (k >= slots.size()) continue;
      ++found;
      buffers.push_back({slots[k]->tensor_name(p.name), DType::kF32, p.shape,
                         state_.as<float>(slots[k]->name()) + member->offset});
    }
  }
}

std::vector<TensorView> Session::checkpoint_views() {
  std::vector<TensorView> views;
  for (const TensorBuffer& b : checkpoint_buffers())
    views.push_back({b.name, b.dtype, b.shape, b.data});
  return views;
}

std::vector<TensorView> Session::weight_views() {
  std::set<std::string> weights;
  for (const Parameter& p : programs_.parameters) weights.insert(p.name);
  std::vector<TensorView> views = checkpoint_views();
  std::erase_if(views, [&](const TensorView& v) { return !weights.contains(v.name); });
  return views;
}

std::pair<const FlatUnit*, const UnitMember*> Session::place(const std::string& parameter) const {
  for (const FlatUnit& unit : programs_.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      if (programs_.parameters[static_cast<size_t>(unit.parameters[k])].name == parameter)
        return {&unit, &unit.members[k]};
    }
  }
  throw InternalError(cat("no parameter '", parameter, "'"));
}

std::span<float> Session::elements(const std::string& parameter,
                                   std::string (*slot)(const FlatUnit&)) {
  TESSERA_CHECK(programs_.parallelism.mesh.world_size() == 1, "a rank has pieces of parameters");
  auto [unit, member] = place(parameter);
  return {state_.as<float>(slot(*unit)) + member->offset,
          static_cast<size_t>(num_elements(member->shape))};
}

std::span<float> Session::parameter(const std::string& name) { return elements(name, weight_slot); }
std::span<float> Session::gradient(const std::string& name) {
  return elements(name, gradient_slot);
}

}  // namespace tessera
