#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/slot.h"
#include "models/build_model.h"
#include "optim/optimizer.h"
#include "passes/flat_units.h"
#include "passes/overlap.h"
#include "passes/pass_runner.h"
#include "passes/precision.h"
#include "passes/residency.h"
#include "train/loss_scaling.h"
#include "train/parallelism.h"

namespace tessera {

struct ProgramOptions {
  int64_t batch = 1, length = 1;  // of training micro-batches
  int64_t validation_batch = 1;
  DType compute = DType::kBF16;  // kF32: no mixed precision
  bool accumulates = false;      // more than one micro-batch a step
  Parallelism parallelism;
  OptimizerOptions optimizer;
  std::optional<LossScaling> loss_scaling;
  double z_loss = 0;  // factor of the head's squares in what is minimised; 0: they are not formed
  std::vector<std::string> freeze;  // what is not trained: train/frozen_parameters.h
  ResidencyOptions residency;       // of the gradient programs
  bool far_state = false;           // all slots but scalars are in the far tier
  OverlapOptions overlap;
  PassOptions passes;
};

// The programs of a training job over one State, the same for all ranks.
struct Programs {
  Parallelism parallelism;
  std::vector<Parameter> parameters;
  std::vector<ParameterPart> parts;  // what a rank has of each
  std::vector<FlatUnit> units;
  // All state of the programs. Of each unit its weights, where it is trainable also what the
  // optimizer keeps and the gradient: f32, flat. Behind them the scalars (ir/slot.h), square_sum
  // with a z-loss, loss_scale and good_steps with loss scaling. What a rank sums over its own data
  // only varies over the data axes; `apply` reduces it.
  std::vector<Slot> slots;
  // (tokens, targets): the first micro-batch of a step overwrites gradients, loss and count ...
  Graph accumulate_first;
  // ... the others add to them. Empty unless `accumulates`.
  Graph accumulate;
  // (lr, max_norm, of trainable units segment_begin.U, segment_decay.U): clips, decides whether the
  // step counts, updates. Outputs loss (token mean), gradient_norm (of the token mean), ok,
  // token_count; with a z-loss also z_loss, factor and token mean in it and not in the loss; with
  // loss scaling also loss_scale, the factor of this step.
  Graph apply;
  // (tokens, targets) -> loss_sum, token_count of all ranks.
  Graph evaluate;
  // As asked for: `apply` then works on the far tier itself, the others fetch what they read.
  bool far_state = false;
  bool has_z_loss = false;
  std::optional<LossScaling> loss_scaling;
  std::vector<PassTiming> timings;
};

Programs build_programs(const ModelBuilder& model, const ProgramOptions& options);

// What build_programs() says of the state (parameters, parts, units), without its programs.
Programs build_state_layout(const ModelBuilder& model, const ProgramOptions& options);

struct NextTokenOptions {
  int64_t length = 1;  // T: tokens that one run takes
  // 0: they are the whole sequence. Otherwise they continue one of at most `cache` tokens, of which
  // the argument `start` went through earlier runs: see passes/kv_cache.h.
  int64_t cache = 0;
  DType compute = DType::kF32;
  Masters masters =
      Masters::kF32;  // kNone: weight slots are in `compute`, rounded by who fills them
  PassOptions passes;
};

// (tokens [1, T], position[, start]) -> logits [1, V] of tokens[position], on one rank, from the
// weight slots of `units`.
struct NextToken {
  std::vector<Parameter> parameters;
  std::vector<FlatUnit> units;
  Graph graph;
};
NextToken build_next_token(const ModelBuilder& model, const NextTokenOptions& options);

}  // namespace tessera
