#pragma once
#include <string>
#include <string_view>

#include "ir/tensor_type.h"

namespace tessera {

// What a slot is there for.
enum class SlotRole : uint8_t {
  kWeight,         // master weights
  kComputeWeight,  // the same in the narrower dtype of compute
  kOptimizer,      // what the optimizer keeps beside them
  kGradient,       // sums of gradients
  kScalar,         // of the job as a whole: sums, counters, factors
};

// A state slot of a training job. All but scalars belong to a flat unit: a rank's piece of it.
struct Slot {
  std::string kind;  // "exp_avg": what the slots of all units have in common
  SlotRole role = SlotRole::kScalar;
  std::string unit;  // "layers.0"; of a scalar empty
  TensorType type;
  bool saved = false;  // in checkpoints

  // In programs and their state: "exp_avg.layers.0", "loss_sum".
  std::string name() const;
  // In a checkpoint, of a parameter of the unit: the parameter's own for weights, else as PyTorch's
  // optimizers have it, "optim.state.PARAMETER.exp_avg".
  std::string tensor_name(std::string_view parameter) const;
};

// Kinds that are the same for every optimizer; those of an optimizer are in its file in optim/.
inline constexpr std::string_view kWeightKind = "weight", kComputeWeightKind = "compute_weight",
                                  kGradientKind = "gradient";
// Scalars. The first three are what a micro-batch adds up, under the names of a model's outputs.
inline constexpr const char *kLossSum = "loss_sum", *kTokenCount = "token_count",
                            *kSquareSum = "square_sum", *kOptimizerStep = "optimizer_step",
                            *kLossScale = "loss_scale", *kGoodSteps = "good_steps";

// An argument and a result of programs of several ranks: ranks that were asked to end the run.
inline constexpr const char* kStopRequests = "stop_requests";

std::string slot_name(std::string_view kind, std::string_view unit);

}  // namespace tessera
