#include "ops/composite/lion.h"
#include "ops/composite/sgd.h"
#include "optim/optimizer.h"

namespace tessera {
namespace {

// One that keeps an average of gradients and nothing else: its op makes the new weights and the new
// average.
class OneMomentOptimizer final : public Optimizer {
 public:
  OneMomentOptimizer(std::string kind, std::shared_ptr<const Op> op)
      : kind_(std::move(kind)), op_(std::move(op)) {}

  std::vector<Slot> slots(const std::string& unit, const TensorType& weights) const override {
    return {optimizer_slot(kind_, unit, weights)};
  }

  std::vector<Value> update(Graph& graph, const UnitUpdate& u) const override {
    return graph.add(op_, {u.weights, u.state[0], u.gradient, u.lr, u.scale, u.ok, u.segment_begin,
                           u.segment_decay});
  }

 private:
  std::string kind_;
  std::shared_ptr<const Op> op_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options) {
  return std::make_unique<OneMomentOptimizer>("momentum_buffer",
                                              std::make_shared<Sgd>(options.momentum));
}

std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options) {
  return std::make_unique<OneMomentOptimizer>("exp_avg",
                                              std::make_shared<Lion>(options.beta1, options.beta2));
}

}  // namespace tessera
