#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/slot.h"

namespace tessera {

// What optimizers can be told; each takes what its row in optimizers() names.
struct OptimizerOptions {
  std::string name = "adamw";
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double momentum = 0.9;
};

// One flat unit in the program of an update: f32 (f64 for f64 weights), a rank's piece of it.
// Pieces cut through parameters, so an update may look at elements only.
struct UnitUpdate {
  Value weights, gradient;       // [n]; the gradient as it was summed
  std::span<const Value> state;  // [n] each, in the order of Optimizer::slots()
  Value lr;                      // scalar
  Value scale;                   // scalar; times the gradient: clipped token mean
  Value ok;                      // bool scalar; where false all content keeps its bits
  Value step;                    // i64 scalar; updates so far, this one included
  Value segment_begin;           // i64 [S], ascending: where parameters begin
  Value segment_decay;           // [S]; the weight decay of each
  DType compute_dtype;           // in which the weights are used: that of `weights`, or a narrower
};

// How gradients become updates. An optimizer says what it keeps of a unit and appends the nodes of
// the update; all else (sums over ranks, clipping, the decision whether a step counts, memory,
// files) is the programs'.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // What it keeps of a unit whose weights have this type. Zero at the start.
  virtual std::vector<Slot> slots(const std::string& unit, const TensorType& weights) const = 0;
  // The new weights and, behind them, the new content of the slots. Behind those, from an optimizer
  // that has them at no cost, the new weights in the dtype of compute, where that is another.
  virtual std::vector<Value> update(Graph& graph, const UnitUpdate& unit) const = 0;
};

struct OptimizerRecord {
  std::string_view name;                  // as --optimizer takes it
  std::vector<std::string_view> options;  // those of the command line that it has for itself
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options);
};

// Every optimizer; the first is the default.
std::span<const OptimizerRecord> optimizers();
const OptimizerRecord& optimizer_record(std::string_view name);
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

// A slot of the weights' type that a checkpoint holds.
Slot optimizer_slot(std::string kind, const std::string& unit, const TensorType& weights);

// In adamw.cpp and one_moment.cpp.
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options);

}  // namespace tessera
