#include "programs/session.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <set>

#include "base/hash.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/printer.h"
#include "passes/document_mask.h"
#include "programs/job_slots.h"
#include "programs/shard_pieces.h"

namespace tessera {
namespace {

// Elements of a parameter from `first` on as its Init says, wherever they lie.
void draw(const Init& init, uint64_t seed, uint64_t stream, int64_t first, std::span<float> out) {
  if (init.kind == InitKind::kOnes || init.kind == InitKind::kZeros) {
    std::ranges::fill(out, init.kind == InitKind::kOnes ? 1.0f : 0.0f);
    return;
  }
  if (init.kind == InitKind::kUniform) {
    const double half_width = init.standard_deviation * std::numbers::sqrt3;
    for (float& value : out) {
      double u = random_uniform(seed, stream, static_cast<uint64_t>(first++));
      value = static_cast<float>(half_width * (2 * u - 1));
    }
    return;
  }
  int64_t end = first + std::ssize(out);
  for (int64_t pair = first / 2; 2 * pair < end; ++pair) {
    auto normals = random_normal_pair(seed, stream, static_cast<uint64_t>(pair));
    for (int64_t element : {2 * pair, 2 * pair + 1}) {
      if (element >= first && element < end)
        out[static_cast<size_t>(element - first)] =
            static_cast<float>(init.standard_deviation * normals[static_cast<size_t>(element & 1)]);
    }
  }
}

}  // namespace

StepResult PendingStep::result() const {
  StepResult result;
  result.loss = update_.scalar<float>("loss");
  if (has_z_loss_) result.z_loss = update_.scalar<float>("z_loss");
  result.gradient_norm = update_.scalar<float>("gradient_norm");
  if (scales_loss_) {
    result.loss_scale = update_.scalar<float>("loss_scale");
    result.next_loss_scale = update_.scalar<float>("next_loss_scale");
  }
  result.ok = update_.scalar<bool>("ok");
  result.tokens = update_.scalar<int64_t>("token_count");
  result.stop = has_ranks_ ? update_.scalar<int64_t>(kStopRequests) > 0 : stop_here_;
  return result;
}

Session::Session(Programs programs, Backend& backend, int rank)
    : programs_(std::move(programs)), backend_(backend), rank_(rank) {
  auto add = [&](const std::string& name, const Graph& graph) {
    if (!graph.nodes().empty()) compiled_.push_back({name, backend.compile(graph)});
  };
  add("accumulate_first", programs_.accumulate_first);
  add("accumulate", programs_.accumulate);
  add("accumulate_last", programs_.accumulate_last);
  add("accumulate_only", programs_.accumulate_only);
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
    const Plan* plan = p.executable->plan();
    for (const Instruction& step : plan ? plan->instructions : std::vector<Instruction>()) {
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

void Session::allocate() {
  Memory planned = planned_memory();
  state_ = backend_.make_state();
  arenas_ = backend_.make_arenas({planned.arena, planned.far_arena});
  for (const Program& p : compiled_) p.executable->bind(*state_, *arenas_);
  if (programs_.loss_scaling)
    set_loss_scale({static_cast<float>(programs_.loss_scaling->initial), 0});
}

std::optional<LossScaleState> Session::loss_scale() {
  if (!programs_.loss_scaling) return std::nullopt;
  return LossScaleState{state_->scalar<float>(kLossScale), state_->scalar<int64_t>(kGoodSteps)};
}

void Session::set_loss_scale(const LossScaleState& scale) {
  state_->set_scalar(kLossScale, scale.scale);
  state_->set_scalar(kGoodSteps, scale.good_steps);
}

Session::Memory Session::planned_memory() const {
  Memory memory;
  memory.far_state = programs_.far_state;
  std::map<std::string, TensorType> slots;
  for (const Program& p : compiled_) {
    ProgramMemory own = p.executable->memory();
    memory.arena = std::max(memory.arena, own.arena);
    memory.far_arena = std::max(memory.far_arena, own.far_arena);
    slots.merge(slot_types(p.executable->graph()));
  }
  TESSERA_CHECK(slots.size() == programs_.slots.size(), "a slot is not in the list");
  for (const Slot& slot : programs_.slots) {
    int64_t bytes = slots.at(slot.name()).bytes();
    switch (slot.role) {
      case SlotRole::kWeight: memory.parameters += bytes; break;
      case SlotRole::kOptimizer: memory.optimizer += bytes; break;
      case SlotRole::kGradient: memory.gradients += bytes; break;
      case SlotRole::kScalar: memory.counters += bytes; break;
    }
  }
  return memory;
}

void Session::initialize(uint64_t seed, ThreadPool& pool) { initialize(seed, pool, false); }

void Session::initialize_adapters(uint64_t seed, ThreadPool& pool) { initialize(seed, pool, true); }

void Session::initialize(uint64_t seed, ThreadPool& pool, bool adapters_alone) {
  constexpr int64_t kTile = 1 << 14;
  for (const FlatUnit& unit : programs_.units) {
    const std::string slot = weight_slot(unit);
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = programs_.parameters[static_cast<size_t>(unit.parameters[k])];
      if (adapters_alone && !p.adapter) continue;
      std::vector<PieceRange> tiles;
      for (const PieceRange& range : piece_ranges(programs_, unit, k, rank_)) {
        for (int64_t at = 0; at < range.count; at += kTile) {
          tiles.push_back({range.global + at, range.local + at, std::min(kTile, range.count - at)});
        }
      }
      uint64_t stream = stream_of(p.name);
      pool.run(static_cast<int64_t>(tiles.size()), [&](int64_t tile, int) {
        const PieceRange& range = tiles[static_cast<size_t>(tile)];
        std::vector<float> drawn(static_cast<size_t>(range.count));
        draw(p.init, seed, stream, range.global, drawn);
        state_->write_rounded(slot, range.local, drawn);
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

void Session::take(const MicroBatch& batch) {
  batch_arguments_["tokens"] = batch.tokens.data();
  batch_arguments_["targets"] = batch.targets.data();
  batch_arguments_["row_keys"] = batch.row_keys.data();
  batch_arguments_[kDocumentStarts] = batch.document_starts.data();
}

void Session::accumulate(std::span<const MicroBatch> micro_batches, const NodeObserver* observer) {
  TESSERA_CHECK(allocated() && !micro_batches.empty());
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    Executable& executable =
        program(programs_.micro_batch(i == 0, i + 1 == micro_batches.size()).name);
    take(micro_batches[i]);
    executable.start(batch_arguments_, observer);
  }
}

PendingStep Session::start_update(double learning_rate, double max_norm, bool stop,
                                  const NodeObserver* observer) {
  auto lr = static_cast<float>(learning_rate);
  auto limit = max_norm > 0 ? static_cast<float>(max_norm) : std::numeric_limits<float>::infinity();
  int64_t stop_requests = stop ? 1 : 0;
  update_arguments_["lr"] = &lr;
  update_arguments_["max_norm"] = &limit;
  update_arguments_[kStopRequests] = &stop_requests;
  PendingStep step;
  step.update_ = program("apply").start(update_arguments_, observer);
  step.has_z_loss_ = programs_.has_z_loss;
  step.scales_loss_ = programs_.loss_scaling.has_value();
  step.has_ranks_ = programs_.parallelism.mesh.world_size() > 1;
  step.stop_here_ = stop;
  return step;
}

EvaluationResult Session::evaluate(MicroBatch batch, bool stop) {
  int64_t stop_requests = stop ? 1 : 0;
  take(batch);
  batch_arguments_[kStopRequests] = &stop_requests;
  Pending run = program("evaluate").start(batch_arguments_);
  bool ranks = programs_.parallelism.mesh.world_size() > 1;
  return {run.scalar<float>("loss_sum"), run.scalar<int64_t>("token_count"),
          ranks ? run.scalar<int64_t>(kStopRequests) > 0 : stop};
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
std::vector<Session::SavedTensor> Session::saved_tensors() const {
  std::vector<SavedTensor> tensors;
  if (programs_.parallelism.mesh.world_size() > 1)
    add_pieces(tensors);
  else
    add_parameters(tensors);
  for (const Slot& slot : programs_.slots) {
    if (slot.saved && slot.role == SlotRole::kScalar)
      tensors.push_back({slot.tensor_name(), slot.type.dtype, slot.type.shape, slot.name(), 0});
  }
  return tensors;
}

void Session::add_pieces(std::vector<SavedTensor>& tensors) const {
  for (const FlatUnit& unit : programs_.units) {
    const std::vector<const Slot*> slots = saved_slots(unit);
    for (size_t k = 0; k < unit.members.size(); ++k) {
      // Consecutive in the rank's own memory, whatever they are in the whole parameter.
      std::vector<PieceRange> ranges = piece_ranges(programs_, unit, k, rank_);
      if (ranges.empty()) continue;
      int64_t begin = ranges.front().local, end = ranges.back().local + ranges.back().count;
      const std::string& name = programs_.parameters[static_cast<size_t>(unit.parameters[k])].name;
      for (const Slot* slot : slots)
        tensors.push_back(
            {slot->tensor_name(name), slot->type.dtype, {end - begin}, slot->name(), begin});
    }
  }
}

// All weights first, then what else is saved of each.
void Session::add_parameters(std::vector<SavedTensor>& tensors) const {
  for (size_t k = 0, found = 1; found > 0; ++k) {
    found = 0;
    for (const Parameter& p : programs_.parameters) {
      auto [unit, member] = place(p.name);
      const std::vector<const Slot*> slots = saved_slots(*unit);
      if (k >= slots.size()) continue;
      ++found;
      tensors.push_back({slots[k]->tensor_name(p.name), slots[k]->type.dtype, p.shape,
                         slots[k]->name(), member->offset});
    }
  }
}

std::vector<TensorBuffer> Session::checkpoint_buffers() {
  std::vector<TensorBuffer> buffers;
  for (const SavedTensor& t : saved_tensors()) {
    // Of f32 in every checkpoint; what is not trained may have no masters.
    if (t.dtype == DType::kBF16) {
      auto write = [this, slot = t.slot, first = t.first](std::span<const std::byte> content) {
        state_->write_rounded(
            slot, first,
            {reinterpret_cast<const float*>(content.data()), content.size() / sizeof(float)});
      };
      buffers.push_back({t.name, DType::kF32, t.shape, TensorSink::Write(write)});
      continue;
    }
    int64_t begin = t.first * size_of(t.dtype);
    auto write = [this, slot = t.slot, begin](std::span<const std::byte> content) {
      state_->write_bytes(slot, begin, content);
    };
    buffers.push_back({t.name, t.dtype, t.shape, TensorSink::Write(write)});
  }
  return buffers;
}

std::vector<TensorView> Session::checkpoint_views() const {
  std::vector<TensorView> views;
  for (const SavedTensor& t : saved_tensors()) {
    if (t.dtype == DType::kBF16) {  // weights without masters: of f32 in every checkpoint
      auto read = [this, slot = t.slot, first = t.first](uint64_t offset, std::span<std::byte> to) {
        TESSERA_CHECK(offset % sizeof(float) == 0 && to.size() % sizeof(float) == 0);
        state_->read_as_f32(slot, first + static_cast<int64_t>(offset / sizeof(float)),
                            {reinterpret_cast<float*>(to.data()), to.size() / sizeof(float)});
      };
      views.push_back({t.name, DType::kF32, t.shape, TensorBytes::Read(read)});
      continue;
    }
    int64_t begin = t.first * size_of(t.dtype);
    auto read = [this, slot = t.slot, begin](uint64_t offset, std::span<std::byte> to) {
      state_->read_bytes(slot, begin + static_cast<int64_t>(offset), to);
    };
    views.push_back({t.name, t.dtype, t.shape, TensorBytes::Read(read)});
  }
  return views;
}

std::vector<TensorView> Session::weight_views() const {
  std::set<std::string> weights;
  for (const Parameter& p : programs_.parameters) weights.insert(p.name);
  std::vector<TensorView> views = checkpoint_views();
  std::erase_if(views, [&](const TensorView& v) { return !weights.contains(v.name); });
  return views;
}

std::pair<const FlatUnit*, const UnitMember*> Session::place(const std::string& parameter) const {
  TESSERA_CHECK(programs_.parallelism.mesh.world_size() == 1, "a rank has pieces of parameters");
  for (const FlatUnit& unit : programs_.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      if (programs_.parameters[static_cast<size_t>(unit.parameters[k])].name == parameter)
        return {&unit, &unit.members[k]};
    }
  }
  throw InternalError(cat("no parameter '", parameter, "'"));
}

void Session::read_parameter(const std::string& name, int64_t first, std::span<float> to) const {
  auto [unit, member] = place(name);
  state_->read_as_f32(weight_slot(*unit), member->offset + first, to);
}

void Session::write_parameter(const std::string& name, int64_t first, std::span<const float> from) {
  auto [unit, member] = place(name);
  state_->write_rounded(weight_slot(*unit), member->offset + first, from);
}

std::vector<float> Session::parameter(const std::string& name) const {
  std::vector<float> values(static_cast<size_t>(num_elements(place(name).second->shape)));
  read_parameter(name, 0, values);
  return values;
}

std::vector<float> Session::gradient(const std::string& name) const {
  auto [unit, member] = place(name);
  std::vector<float> values(static_cast<size_t>(num_elements(member->shape)));
  state_->read(gradient_slot(*unit), member->offset, std::span(values));
  return values;
}

}  // namespace tessera
