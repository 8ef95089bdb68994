#pragma once
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_reader.h"
#include "programs/programs.h"
#include "runtime/backend.h"

namespace tessera {

struct StepResult {
  double loss = 0;               // mean over the tokens of the step
  std::optional<double> z_loss;  // the same of the z-loss, its factor in it; where there is one
  double gradient_norm = 0;      // before clipping
  std::optional<double> loss_scale, next_loss_scale;  // of this step; where there is one
  bool ok = true;                                     // false: the update was skipped
  bool spike = false;  // so it was since the loss is above max_loss, and all is finite
  int64_t tokens = 0;
  bool stop = false;       // some rank was asked to end the run
  uint32_t announced = 0;  // StepMessage::announced of rank 0
};

// What a rank tells all others by a step: they hear of it by the step's result.
struct StepMessage {
  bool stop = false;       // this rank was asked to end the run
  uint32_t announced = 0;  // of rank 0: what all are to do together, below 2^20
};

// A step that was started, perhaps not done yet. It can be asked until the second step after it
// begins.
class PendingStep {
 public:
  PendingStep() = default;
  StepResult result() const;  // waits for the step

 private:
  friend class Session;
  Pending update_;
  bool has_z_loss_ = false, scales_loss_ = false, has_ranks_ = false;
  int64_t message_ = 0;
};

// What a validation batch gives, of all ranks.
struct EvaluationResult {
  double loss_sum = 0;
  int64_t tokens = 0;
  bool stop = false;  // as of a step
};

// One micro-batch: tokens and targets [batch, length]; for a model that trains with dropout a key
// [batch] of which each row's random numbers are made (ops/composite/dropout.h); where rows hold
// several documents, where those begin, [batch, length] (passes/document_mask.h).
struct MicroBatch {
  std::span<const int32_t> tokens, targets;
  std::span<const int64_t> row_keys = {};
  std::span<const int32_t> document_starts = {};
};

// Compiled programs of one rank with their state and arena: everything that a step needs, and
// nothing of files, data or logging.
class Session {
 public:
  // The backend must live longer.
  Session(Programs programs, Backend& backend, int rank = 0);

  const Programs& programs() const { return programs_; }
  const State& state() const { return *state_; }
  // For who writes to it before the next program runs: what follows from weights is made anew.
  State& state_to_write() {
    compute_weights_follow_ = false;
    return *state_;
  }

  // Allocates state and arenas. Before this a session can be asked for its plans only.
  void allocate();
  bool allocated() const { return arenas_ != nullptr; }

  struct Memory {
    int64_t parameters = 0, compute_weights = 0, optimizer = 0, gradients = 0, counters = 0;
    int64_t arena = 0, far_arena = 0;
    bool far_state = false;  // what belongs to parameters is in the far tier
    int64_t of_parameters() const { return parameters + compute_weights + optimizer + gradients; }
    int64_t total() const {
      return checked_add(checked_add(of_parameters() + counters, arena), far_arena);
    }
    int64_t near() const { return total() - far(); }
    int64_t far() const { return far_arena + (far_state ? of_parameters() : 0); }
  };
  // Of what must be equal on all ranks of a job: the ops of the programs, their exchanges and
  // slots, and the order in which they run. Not of places in memory: scratch depends on the
  // threads.
  uint64_t plan_hash() const;

  // Of all programs together: composites for which the device has no kernel.
  std::vector<Declined> declined() const;

  // From the plans alone; equal to what allocate() takes, to the byte.
  Memory planned_memory() const;
  // What allocate() took.
  int64_t allocated_bytes() const { return state_->bytes() + arenas_->bytes(); }

  // First weights from the seed, by (seed, parameter name, element): see nn/parameter.h. A rank
  // draws its own pieces only, so no rank ever holds the whole model.
  void initialize(uint64_t seed, ThreadPool& pool);
  // Of adapters alone (nn/lora.h).
  void initialize_adapters(uint64_t seed, ThreadPool& pool);
  // Decay of every parameter whose Parameter::decay is set, or of all.
  void set_decay(double weight_decay, bool decay_all);

  // Where the programs limit the loss: of the steps from here on. Infinite unless it was set.
  void set_max_loss(double max_loss) { max_loss_ = static_cast<float>(max_loss); }

  // The gradients of a step, then its update.
  StepResult step(std::span<const MicroBatch> micro_batches, double learning_rate, double max_norm,
                  const NodeObserver* observer = nullptr) {
    accumulate(micro_batches, observer);
    return start_update(learning_rate, max_norm, {}, observer).result();
  }
  PendingStep start_update(double learning_rate, double max_norm, StepMessage message,
                           const NodeObserver* observer = nullptr);
  // Only the gradient programs: what step() does before the update, sums over
  // replicas included. Also for replays and tests.
  void accumulate(std::span<const MicroBatch> micro_batches,
                  const NodeObserver* observer = nullptr);
  // Where the programs scale the loss.
  std::optional<LossScaleState> loss_scale();
  void set_loss_scale(const LossScaleState& state);
  EvaluationResult evaluate(MicroBatch batch, bool stop = false);

  // What checkpoints hold, by parameter, as this rank has it; of several ranks boxes of what each
  // parameter is as a whole. Also updates so far, as the counter of every trained parameter that
  // PyTorch's optimizers have.
  std::vector<StateBox> checkpoint_boxes() const;
  // Where to load it.
  std::vector<StateTarget> checkpoint_targets();
  // Of the boxes the weights alone.
  std::vector<StateBox> weight_boxes() const;
  // Where there is one rank: master weights of one parameter, from element `first` on.
  void read_parameter(const std::string& name, int64_t first, std::span<float> to) const;
  void write_parameter(const std::string& name, int64_t first, std::span<const float> from);
  // All of them, or the gradient after accumulate() if it is trainable.
  std::vector<float> parameter(const std::string& name) const;
  std::vector<float> gradient(const std::string& name) const;

  struct Program {
    std::string name;
    std::unique_ptr<Executable> executable;
  };
  const std::vector<Program>& compiled() const { return compiled_; }

 private:
  Executable& program(std::string_view name);
  void round_weights();
  void initialize(uint64_t seed, ThreadPool& pool, bool adapters_alone);
  void take(const MicroBatch& batch);
  std::vector<const Slot*> saved_slots(const FlatUnit& unit) const;
  void add_counters(std::vector<StateBox>& boxes, const Slot& slot) const;
  std::pair<const FlatUnit*, const UnitMember*> place(const std::string& parameter) const;

  Programs programs_;
  Backend& backend_;
  int rank_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Arenas> arenas_;
  std::vector<Program> compiled_;                    // which use them, so that they go first
  Arguments batch_arguments_, update_arguments_;     // kept, so that a step allocates nothing
  std::vector<std::vector<int64_t>> segment_begin_;  // by unit
  std::vector<std::vector<float>> segment_decay_;
  bool compute_weights_follow_ = false;  // those of compute are the masters, rounded
  float max_loss_ = std::numeric_limits<float>::infinity();
};

}  // namespace tessera
