#include "programs/session.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

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

TensorRole role_of(const Slot& slot) {
  return slot.role == SlotRole::kWeight ? TensorRole::kWeight : TensorRole::kMoment;
}

// The sum over ranks holds the requests to stop below this factor, what rank 0 announces above.
constexpr int64_t kAnnounced = int64_t{1} << 32;

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
  result.spike = !result.ok && std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  result.tokens = update_.scalar<int64_t>("token_count");
  const int64_t heard = has_ranks_ ? update_.scalar<int64_t>(kStopRequests) : message_;
  result.stop = heard % kAnnounced > 0;
  result.announced = static_cast<uint32_t>(heard / kAnnounced);
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
  add("round_weights", programs_.round_weights);
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
  if (programs_.far_state) {
    for (const Slot& slot : programs_.slots)
      if (slot.role != SlotRole::kScalar) state_->keep_far(slot.name());
  }
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
      case SlotRole::kComputeWeight: memory.compute_weights += bytes; break;
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
  State& state = state_to_write();
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
        state.write_rounded(slot, range.local, drawn);
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
  round_weights();
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    Executable& executable =
        program(programs_.micro_batch(i == 0, i + 1 == micro_batches.size()).name);
    take(micro_batches[i]);
    executable.start(batch_arguments_, observer);
  }
}

PendingStep Session::start_update(double learning_rate, double max_norm, StepMessage message,
                                  const NodeObserver* observer) {
  auto lr = static_cast<float>(learning_rate);
  auto limit = max_norm > 0 ? static_cast<float>(max_norm) : std::numeric_limits<float>::infinity();
  TESSERA_CHECK(message.announced < 1 << 20 && (rank_ == 0 || message.announced == 0));
  int64_t stop_requests = message.announced * kAnnounced + (message.stop ? 1 : 0);
  update_arguments_["lr"] = &lr;
  update_arguments_["max_norm"] = &limit;
  update_arguments_["max_loss"] = &max_loss_;
  update_arguments_[kStopRequests] = &stop_requests;
  PendingStep step;
  step.update_ = program("apply").start(update_arguments_, observer);
  step.has_z_loss_ = programs_.has_z_loss;
  step.scales_loss_ = programs_.loss_scaling.has_value();
  step.has_ranks_ = programs_.parallelism.mesh.world_size() > 1;
  step.message_ = stop_requests;
  return step;
}

EvaluationResult Session::evaluate(MicroBatch batch, bool stop) {
  int64_t stop_requests = stop ? 1 : 0;
  round_weights();
  take(batch);
  batch_arguments_[kStopRequests] = &stop_requests;
  Pending run = program("evaluate").start(batch_arguments_);
  bool ranks = programs_.parallelism.mesh.world_size() > 1;
  return {run.scalar<float>("loss_sum"), run.scalar<int64_t>("token_count"),
          ranks ? run.scalar<int64_t>(kStopRequests) > 0 : stop};
}

void Session::round_weights() {
  if (!compute_weights_follow_ && !programs_.round_weights.nodes().empty())
    program("round_weights").start({}).wait();
  compute_weights_follow_ = true;
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

std::vector<StateBox> Session::checkpoint_boxes() const {
  std::vector<StateBox> boxes;
  for (const FlatUnit& unit : programs_.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = programs_.parameters[static_cast<size_t>(unit.parameters[k])];
      const bool copy = is_copy(programs_, unit, k, rank_);
      for (const PieceBox& piece : piece_boxes(programs_, unit, k, rank_)) {
        for (const Slot* slot : saved_slots(unit)) {
          int64_t begin = piece.local * size_of(slot->type.dtype);
          auto read = [this, name = slot->name(), begin](uint64_t offset, std::span<std::byte> to) {
            state_->read_bytes(name, begin + static_cast<int64_t>(offset), to);
          };
          auto find = [this, name = slot->name(), begin] {
            const std::byte* data = state_->host_bytes(name);
            return data ? data + begin : nullptr;
          };
          boxes.push_back({slot->tensor_name(p.name), role_of(*slot), slot->type.dtype, p.shape,
                           piece.box, TensorBytes(read, find), copy});
        }
      }
    }
  }
  for (const Slot& slot : programs_.slots)
    if (slot.saved && slot.role == SlotRole::kScalar) add_counters(boxes, slot);
  return boxes;
}

// f32 holds 16 million steps exactly.
void Session::add_counters(std::vector<StateBox>& boxes, const Slot& slot) const {
  TESSERA_CHECK(slot.name() == kOptimizerStep, slot.name());
  auto read = [this](uint64_t offset, std::span<std::byte> to) {
    state_->read_bytes(kOptimizerStep, static_cast<int64_t>(offset), to);
  };
  boxes.push_back({kOptimizerStep,
                   TensorRole::kCounter,
                   DType::kI64,
                   {},
                   {},
                   TensorBytes::Read(read),
                   rank_ > 0});
  auto as_f32 = [this](uint64_t offset, std::span<std::byte> to) {
    auto steps = static_cast<float>(state_->scalar<int64_t>(kOptimizerStep));
    std::ranges::copy(std::as_bytes(std::span(&steps, 1)).subspan(offset, to.size()), to.begin());
  };
  for (const Parameter& p : programs_.parameters) {
    if (!p.trainable) continue;
    boxes.push_back({cat("optim.state.", p.name, ".step"),
                     TensorRole::kCounter,
                     DType::kF32,
                     {},
                     {},
                     TensorBytes::Read(as_f32),
                     rank_ > 0});
  }
}

std::vector<StateTarget> Session::checkpoint_targets() {
  compute_weights_follow_ = false;  // once somebody writes there
  std::vector<StateTarget> targets;
  for (const FlatUnit& unit : programs_.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = programs_.parameters[static_cast<size_t>(unit.parameters[k])];
      std::vector<PieceBox> pieces = piece_boxes(programs_, unit, k, rank_);
      // Of what other ranks have, too, it is known that it belongs to the run.
      if (pieces.empty()) pieces.push_back({{Shape(p.shape.size(), 0), Shape(p.shape.size(), 0)}});
      for (const PieceBox& piece : pieces) {
        for (const Slot* slot : saved_slots(unit)) {
          auto write = [this, name = slot->name(), first = piece.local,
                        size = size_of(slot->type.dtype)](int64_t at,
                                                          std::span<const std::byte> content) {
            state_->write_bytes(name, (first + at) * size, content);
          };
          targets.push_back(
              {slot->tensor_name(p.name), slot->type.dtype, p.shape, piece.box, write});
        }
      }
    }
  }
  for (const Slot& slot : programs_.slots) {
    if (!slot.saved || slot.role != SlotRole::kScalar) continue;
    auto write = [this, name = slot.name()](int64_t, std::span<const std::byte> content) {
      state_->write_bytes(name, 0, content);
    };
    targets.push_back({slot.name(), slot.type.dtype, {}, {}, write});
  }
  return targets;
}

std::vector<StateBox> Session::weight_boxes() const {
  std::vector<StateBox> boxes = checkpoint_boxes();
  std::erase_if(boxes, [](const StateBox& b) { return b.role != TensorRole::kWeight; });
  return boxes;
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
  state_to_write().write_rounded(weight_slot(*unit), member->offset + first, from);
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
