#include "ops/composite/sgd.h"

#include "optim/optimizer.h"

namespace tessera {
namespace {

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(const OptimizerOptions& o) : op_(std::make_shared<Sgd>(o.momentum)) {}

  std::vector<Slot> slots(const std::string& unit, const TensorType& weights) const override {
    return {optimizer_slot("momentum_buffer", unit, weights)};
  }

  std::vector<Value> update(Graph& graph, const UnitUpdate& u) const override {
    return graph.add(op_, {u.weights, u.state[0], u.gradient, u.lr, u.scale, u.ok, u.segment_begin,
                           u.segment_decay});
  }

 private:
  std::shared_ptr<const Sgd> op_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options) {
  return std::make_unique<SgdOptimizer>(options);
}

}  // namespace tessera
