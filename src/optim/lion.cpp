#include "ops/composite/lion.h"

#include "optim/optimizer.h"

namespace tessera {
namespace {

class LionOptimizer final : public Optimizer {
 public:
  explicit LionOptimizer(const OptimizerOptions& o)
      : op_(std::make_shared<Lion>(o.beta1, o.beta2)) {}

  std::vector<Slot> slots(const std::string& unit, const TensorType& weights) const override {
    return {optimizer_slot("exp_avg", unit, weights)};
  }

  std::vector<Value> update(Graph& graph, const UnitUpdate& u) const override {
    return graph.add(op_, {u.weights, u.state[0], u.gradient, u.lr, u.scale, u.ok, u.segment_begin,
                           u.segment_decay});
  }

 private:
  std::shared_ptr<const Lion> op_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options) {
  return std::make_unique<LionOptimizer>(options);
}

}  // namespace tessera
