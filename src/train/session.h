#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "runtime/executable.h"
#include "train/programs.h"

namespace tessera {

// What a session needs of a backend.
using CompileFunction = std::function<std::unique_ptr<Executable>(const Graph&)>;

struct StepResult {
  double loss = 0;                   // mean over the tokens of the step
  std::optional<double> z_loss;      // the same of the z-loss, its factor in it; where there is one
  double gradient_norm = 0;          // before clipping
  std::optional<double> loss_scale;  // of this step; where there is one
  bool ok = true;                    // false: the update was skipped
  int64_t tokens = 0;
};

// One micro-batch: tokens and targets [batch, length], and for a model that trains with dropout a
// key [batch] of which each row's random numbers are made (ops/composite/dropout.h).
struct MicroBatch {
  std::span<const int32_t> tokens, targets;
  std::span<const int64_t> row_keys = {};
};

// Compiled programs of one rank with their state and arena: everything that a step needs, and
// nothing of files, data or logging.
class Session {
 public:
  Session(Programs programs, const CompileFunction& compile, int rank = 0);

  const Programs& programs() const { return programs_; }
  State& state() { return state_; }

  // Allocates state and arena, the latter by `make_arena`. Before this a session can be asked for
  // its plans only.
  using MakeBuffer = std::function<HostBuffer(int64_t bytes)>;
  void allocate(const MakeBuffer& make_arena = [](int64_t bytes) { return HostBuffer(bytes); });
  bool allocated() const { return arena_.data() != nullptr; }

  struct Memory {
    int64_t parameters = 0, optimizer = 0, gradients = 0, counters = 0, arena = 0, far_arena = 0;
    bool far_state = false;  // the first three are in the far tier
    int64_t total() const {
      return checked_add(checked_add(parameters + optimizer + gradients + counters, arena),
                         far_arena);
    }
    int64_t near() const { return total() - far(); }
    int64_t far() const { return far_arena + (far_state ? parameters + optimizer + gradients : 0); }
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
  int64_t allocated_bytes() const { return state_.bytes() + arena_.bytes() + far_arena_.bytes(); }

  // First weights from the seed, by (seed, parameter name, element): see nn/parameter.h. A rank
  // draws its own pieces only, so no rank ever holds the whole model.
  void initialize(uint64_t seed, ThreadPool& pool);
  // Decay of every parameter whose Parameter::decay is set, or of all.
  void set_decay(double weight_decay, bool decay_all);

  StepResult step(std::span<const MicroBatch> micro_batches, double learning_rate, double max_norm,
                  const NodeObserver* observer = nullptr);
  // Only the gradient programs: what step() does before the update. For replays and gradient tests.
  void accumulate(std::span<const MicroBatch> micro_batches,
                  const NodeObserver* observer = nullptr);
  // Where the programs scale the loss.
  std::optional<LossScaleState> loss_scale();
  void set_loss_scale(const LossScaleState& state);
  // Sum of losses and number of tokens of a validation batch, over all ranks.
  std::pair<double, int64_t> evaluate(MicroBatch batch);

  // The slots that are saved, by parameter, as views and as targets for loading; of several ranks
  // each has its pieces, flat.
  std::vector<TensorView> checkpoint_views();
  std::vector<TensorBuffer> checkpoint_buffers();
  // Of them the weights alone.
  std::vector<TensorView> weight_views();
  // The master weights of one parameter, or its gradient after accumulate() if it is trainable,
  // where there is one rank.
  std::span<float> parameter(const std::string& name);
  std::span<float> gradient(const std::string& name);

  struct Program {
    std::string name;
    std::unique_ptr<Executable> executable;
  };
  const std::vector<Program>& compiled() const { return compiled_; }

 private:
  Executable& program(std::string_view name);
  std::vector<const Slot*> saved_slots(const FlatUnit& unit) const;
  void add_pieces(std::vector<TensorBuffer>& buffers);
  void add_parameters(std::vector<TensorBuffer>& buffers);
  std::pair<const FlatUnit*, const UnitMember*> place(const std::string& parameter) const;
  std::span<float> elements(const std::string& parameter, std::string (*slot)(const FlatUnit&));

  Programs programs_;
  int rank_;
  std::vector<Program> compiled_;
  State state_;
  HostBuffer arena_, far_arena_;
  Arguments batch_arguments_, update_arguments_;     // kept, so that a step allocates nothing
  std::vector<std::vector<int64_t>> segment_begin_;  // by unit
  std::vector<std::vector<float>> segment_decay_;
};

}  // namespace tessera
