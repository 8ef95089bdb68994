#pragma once
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "options/loss_scaling.h"
#include "options/run_config.h"
#include "passes/overlap.h"
#include "passes/pass_runner.h"
#include "passes/residency.h"
#include "programs/parallelism.h"

namespace tessera {

// What the programs of a job depend on beside the model.
struct ProgramOptions {
  int64_t batch = 1, length = 1;  // of training micro-batches
  int64_t validation_batch = 1;
  DType compute = DType::kBF16;  // kF32: no mixed precision
  bool accumulates = false;      // more than one micro-batch a step
  bool document_mask = false;    // rows hold several documents: argument document_starts
  bool trains = true;            // false: only `evaluate` is built, on weights in `compute`
  bool evaluates = true;         // false: `evaluate` is not built; for what trains
  Parallelism parallelism;
  OptimizerOptions optimizer;
  std::optional<LossScaling> loss_scaling;
  bool limits_loss = false;  // an update whose loss is above the argument max_loss is left out
  double z_loss = 0;  // factor of the head's squares in what is minimised; 0: they are not formed
  std::vector<std::string> freeze;  // what is not trained: programs/frozen_parameters.h
  ResidencyOptions residency;       // of the gradient programs
  bool far_state = false;           // all slots but scalars are in the far tier
  OverlapOptions overlap;
  PassOptions passes;
};

// What matrices and activations are computed in; weights and their updates are f32.
DType compute_dtype(const RunConfig& config);
// Whether options ask for validations, or what needs one.
bool asks_for_validation(const RunConfig& config);
ScheduleOptions schedule_options(const RunConfig& config);
OptimizerOptions optimizer_options(const RunConfig& config);
ProgramOptions program_options(const RunConfig& config, const Parallelism& parallelism);

}  // namespace tessera
