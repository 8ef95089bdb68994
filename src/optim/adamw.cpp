#include "ops/composite/adamw.h"

#include "optim/optimizer.h"

namespace tessera {
namespace {

class AdamWOptimizer final : public Optimizer {
 public:
  explicit AdamWOptimizer(const OptimizerOptions& o)
      : op_(std::make_shared<AdamW>(o.beta1, o.beta2, o.epsilon)),
        rounding_(std::make_shared<AdamW>(o.beta1, o.beta2, o.epsilon, true)) {}

  std::vector<Slot> slots(const std::string& unit, const TensorType& weights) const override {
    return {optimizer_slot("exp_avg", unit, weights), optimizer_slot("exp_avg_sq", unit, weights)};
  }

  std::vector<Value> update(Graph& graph, const UnitUpdate& u) const override {
    return graph.add(u.compute_dtype == DType::kBF16 ? rounding_ : op_,
                     {u.weights, u.state[0], u.state[1], u.gradient, u.lr, u.scale, u.ok, u.step,
                      u.segment_begin, u.segment_decay});
  }

 private:
  std::shared_ptr<const AdamW> op_, rounding_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options) {
  return std::make_unique<AdamWOptimizer>(options);
}

}  // namespace tessera
