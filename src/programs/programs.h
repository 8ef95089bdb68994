#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "ir/slot.h"
#include "models/build_model.h"
#include "passes/flat_units.h"
#include "programs/program_options.h"

namespace tessera {

struct MicroBatchProgram {
  std::string_view name;
  const Graph& graph;
};

// The programs of a training job over one State, the same for all ranks. Of one that only evaluates
// all but `evaluate` are empty, and weights are its only state: in bf16 where that is computed in.
struct Programs {
  Parallelism parallelism;
  std::vector<Parameter> parameters;
  std::vector<ParameterPart> parts;  // what a rank has of each
  std::vector<FlatUnit> units;
  // All state of the programs. Of each unit its weights, where it is trainable also what the
  // optimizer keeps and the gradient: f32, flat; and the weights in a narrower dtype of compute
  // (passes/compute_weights.h). Behind them the scalars (ir/slot.h), square_sum
  // with a z-loss, loss_scale and good_steps with loss scaling. What a rank sums over its own data
  // only varies over the data axes: the last micro-batch's program reduces gradients, and keeps the
  // slot's type; `apply` the scalars, and gradients that are added up whole.
  std::vector<Slot> slots;
  // (tokens, targets[, row_keys][, document_starts]): the first micro-batch of a step overwrites
  // gradients, loss and count ...
  Graph accumulate_first;
  // ... the others add to them. Empty unless `accumulates`.
  Graph accumulate;
  // The same two for the last micro-batch, which also sums every gradient over the axes over which
  // its parameter does not vary. Empty where there is nothing to sum, and unless `accumulates`:
  // then the first is always the last, and sums.
  Graph accumulate_last, accumulate_only;
  // (lr, max_norm[, max_loss], of trainable units segment_begin.U, segment_decay.U): clips, decides
  // whether the step counts, updates. Outputs loss (token mean), gradient_norm (of the token mean),
  // ok, token_count; with a z-loss also z_loss, factor and token mean in it and not in the loss;
  // with loss scaling also loss_scale and next_loss_scale, the factors of this step and of the
  // next.
  Graph apply;
  // The weights of compute from the masters, for those that the host has written: a step needs it
  // once, behind that. Empty where parameters are used in the dtype of their masters.
  Graph round_weights;
  // (tokens, targets[, document_starts]) -> loss_sum, token_count of all ranks. Empty unless
  // `evaluates`.
  Graph evaluate;
  // On several ranks both also take stop_requests of this rank and give their sum: how many were
  // asked to end the run.
  // As asked for: `apply` then works on the far tier itself, the others fetch what they read.
  bool far_state = false;
  bool has_z_loss = false;
  std::optional<LossScaling> loss_scaling;
  std::vector<PassTiming> timings;

  // The program of a micro-batch of a step, by its place in it.
  MicroBatchProgram micro_batch(bool first, bool last) const;
};

Programs build_programs(const ModelBuilder& model, const ProgramOptions& options);

// What build_programs() says of the state (parameters, parts, units), without its programs.
Programs build_state_layout(const ModelBuilder& model, const ProgramOptions& options);

struct NextTokenOptions {
  int64_t length = 1;  // T: tokens of each sequence that one run takes
  int64_t batch = 1;   // B: sequences
  // 0: they are the whole sequence. Otherwise they continue one of at most `cache` tokens, one of
  // `rows` that are kept, as the arguments `start` and `row` say: see passes/kv_cache.h.
  int64_t cache = 0, rows = 1;
  DType compute = DType::kF32;
  Masters masters =
      Masters::kF32;  // kNone: weight slots are in `compute`, rounded by who fills them
  PassOptions passes;
};

// (tokens [B, T], position [B][, start [B], row [B]]) -> logits [B, V], row b of token position[b]
// of all B * T, on one rank, from the weight slots of `units`.
struct NextToken {
  std::vector<Parameter> parameters;
  std::vector<FlatUnit> units;
  Graph graph;
};
NextToken build_next_token(const ModelBuilder& model, const NextTokenOptions& options);

}  // namespace tessera
