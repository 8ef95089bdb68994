#include "programs/apply_program.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "ir/marks.h"
#include "ops/collective/collective.h"
#include "ops/composite/sum_squares.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "passes/compute_weights.h"
#include "programs/gradient_program.h"
#include "programs/job_slots.h"

namespace tessera {
namespace {

class ApplyBuilder {
 public:
  ApplyBuilder(const std::vector<FlatUnit>& units, const ProgramOptions& options,
               const Optimizer& optimizer, const Graph& accumulate)
      : options_(options), optimizer_(optimizer), p_(options.parallelism), g_(p_.mesh) {
    std::ranges::copy_if(units, std::back_inserter(units_), &FlatUnit::trainable);
    for (const StateUpdate& update : accumulate.updates())
      slots_[update.slot] = accumulate.type(update.value);
  }

  Graph build() {
    g_.set_phase(Phase::kOptimizer);
    const DType master = units_.front().dtype;
    const TensorType scalar{{}, master}, counter{{}, DType::kI64};
    Value lr = g_.input("lr", InputKind::kArgument, scalar),
          max_norm = g_.input("max_norm", InputKind::kArgument, scalar);
    Value loss_sum = sum_over_marks(g_, slot(kLossSum));
    Value count = sum_over_marks(g_, slot(kTokenCount));
    Value tokens =
        binary(g_, BinaryKind::kMax, convert(g_, count, master), constant(g_, scalar, 1));
    std::vector<Value> gradients;
    for (const FlatUnit& unit : units_) gradients.push_back(reduced_gradient(unit));
    Value loss = div(g_, loss_sum, tokens), divisor = tokens, loss_scale;
    if (options_.loss_scaling) {
      loss_scale = g_.input(kLossScale, InputKind::kState, scalar);
      Value share = constant(g_, scalar, one_token_share(options_));
      divisor = mul(g_, tokens, mul(g_, loss_scale, share));
    }
    Value norm = div(g_, unary(g_, UnaryKind::kSqrt, sum_of_squares(gradients)), divisor);
    norm = finite_on_all_ranks(norm, loss, gradients);
    const Value finite = binary(g_, BinaryKind::kAnd, unary(g_, UnaryKind::kIsFinite, loss),
                                unary(g_, UnaryKind::kIsFinite, norm));
    Value ok = finite;
    if (options_.limits_loss) {
      Value max_loss = g_.input("max_loss", InputKind::kArgument, scalar);
      ok = binary(g_, BinaryKind::kAnd, ok, compare(g_, Comparison::kLe, loss, max_loss));
    }
    // min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_.
    Value clip = div(g_, max_norm, add(g_, norm, constant(g_, scalar, 1e-6)));
    Value scale = div(g_, binary(g_, BinaryKind::kMin, clip, constant(g_, scalar, 1)), divisor);
    Value step =
        add(g_, g_.input(kOptimizerStep, InputKind::kState, counter), convert(g_, ok, DType::kI64));
    for (size_t u = 0; u < units_.size(); ++u) update(units_[u], gradients[u], lr, scale, ok, step);
    g_.update(kOptimizerStep, step);
    g_.output("loss", loss);
    g_.output("gradient_norm", norm);
    g_.output("ok", ok);
    g_.output("token_count", count);
    exchange_stop_requests(g_);
    if (loss_scale) {
      g_.output("loss_scale", loss_scale);
      update_loss_scale(loss_scale, finite);
    }
    if (slots_.contains(kSquareSum)) {
      Value squares = div(g_, sum_over_marks(g_, slot(kSquareSum)), tokens);
      g_.output("z_loss", mul(g_, squares, constant(g_, scalar, options_.z_loss)));
    }
    return std::move(g_);
  }

 private:
  Value slot(const std::string& name) { return g_.input(name, InputKind::kState, slots_.at(name)); }

  void update_loss_scale(Value scale, Value finite) {
    const LossScaling& s = *options_.loss_scaling;
    auto number = [&](double x) { return constant_like(g_, scale, x); };
    const TensorType counter{{}, DType::kI64};
    auto count = [&](int64_t n) { return constant(g_, counter, static_cast<double>(n)); };
    Value good = add(g_, g_.input(kGoodSteps, InputKind::kState, counter), count(1));
    Value due = compare(g_, Comparison::kGe, good, count(s.interval));
    Value twice = binary(g_, BinaryKind::kMin, mul(g_, scale, number(2)), number(s.highest));
    Value half = binary(g_, BinaryKind::kMax, mul(g_, scale, number(0.5)), number(s.lowest));
    Value next = select(g_, finite, select(g_, due, twice, scale), half);
    g_.update(kLossScale, next);
    g_.output("next_loss_scale", next);
    g_.update(kGoodSteps, select(g_, finite, select(g_, due, count(0), good), count(0)));
  }

  // The last gradient program has reduced it, but for whole gradients: those are scattered here.
  Value reduced_gradient(const FlatUnit& unit) {
    Scope scope(g_, unit.name);
    Value gradient = slot(gradient_slot(unit));
    if (is_own_piece(g_, gradient, unit)) {
      AxisSet same = axes_of_copies(g_, gradient, unit, p_.data);
      if (same.empty()) return gradient;
      return g_.add_one(std::make_shared<AsReplicatedOp>(same), {gradient});
    }
    gradient = convert(g_, gradient, p_.reduce_dtype);
    gradient = reduce_scatter(g_, gradient, p_.data.shard, 0, unit.dtype);
    return sum_over_copies(g_, gradient, unit, p_.data);
  }

  // Each squared sum carries its gradient's marks and is summed over those axes only, so that every
  // parameter counts once.
  Value sum_of_squares(const std::vector<Value>& gradients) {
    std::map<uint32_t, Value> by_marks;
    for (size_t u = 0; u < units_.size(); ++u) {
      Scope scope(g_, units_[u].name);
      Value s = g_.add_one(std::make_shared<SumSquares>(), {gradients[u]});
      Value& sum = by_marks[g_.type(s).varying.bits];
      sum = sum ? add(g_, sum, s) : s;
    }
    Value total;
    for (auto& [marks, sum] : by_marks) {
      Value s = sum_over_marks(g_, sum);
      total = total ? add(g_, total, s) : s;
    }
    return total;
  }

  // The norm, or NaN if it or the loss is not finite on any rank: of what is replicated each has a
  // copy of its own, which a fault may reach alone, and all must skip the same updates.
  Value finite_on_all_ranks(Value norm, Value loss, const std::vector<Value>& gradients) {
    AxisSet copies;
    for (Value gradient : gradients)
      copies = copies | (p_.mesh.all_axes() - g_.type(gradient).varying);
    if (p_.mesh.size(copies) == 1) return norm;
    // 0, or NaN.
    Value doubt = add(g_, sub(g_, norm, norm), sub(g_, loss, loss));
    return add(g_, norm, sum_over_marks(g_, vary(g_, doubt, copies)));
  }

  void update(const FlatUnit& unit, Value gradient, Value lr, Value scale, Value ok, Value step) {
    Scope scope(g_, unit.name);
    const TensorType flat = weight_type(unit, p_.data);
    auto segments = static_cast<int64_t>(unit.members.size());
    const std::string weights = weight_slot(unit);
    Value w = g_.input(weights, InputKind::kState, flat);
    const std::vector<Slot> slots = optimizer_.slots(unit.name, flat);
    std::vector<Value> state;
    for (const Slot& slot : slots)
      state.push_back(g_.input(slot.name(), InputKind::kState, slot.type));
    Value begin = g_.input(cat("segment_begin.", unit.name), InputKind::kArgument,
                           {{segments}, DType::kI64, flat.varying});
    Value decay = g_.input(cat("segment_decay.", unit.name), InputKind::kArgument,
                           {{segments}, unit.dtype, flat.varying});
    std::vector<Value> next = optimizer_.update(g_, {.weights = w,
                                                     .gradient = gradient,
                                                     .state = state,
                                                     .lr = lr,
                                                     .scale = scale,
                                                     .ok = ok,
                                                     .step = step,
                                                     .segment_begin = begin,
                                                     .segment_decay = decay,
                                                     .compute_dtype = unit.compute_dtype});
    TESSERA_CHECK(next.size() >= 1 + slots.size(), unit.name);
    g_.update(weights, next[0]);
    for (size_t k = 0; k < slots.size(); ++k) g_.update(slots[k].name(), next[1 + k]);
    if (!keeps_compute_weights(unit)) return;
    if (next.size() == 1 + slots.size()) next.push_back(convert(g_, next[0], unit.compute_dtype));
    g_.update(compute_weight_slot(unit), next.back());
  }

  std::vector<FlatUnit> units_;
  const ProgramOptions& options_;
  const Optimizer& optimizer_;
  const Parallelism& p_;
  Graph g_;
  std::map<std::string, TensorType> slots_;
};

}  // namespace

Graph round_weights_program(const std::vector<FlatUnit>& units, const Parallelism& parallelism) {
  Graph g(parallelism.mesh);
  g.set_phase(Phase::kOptimizer);
  for (const FlatUnit& unit : units) {
    if (!keeps_compute_weights(unit)) continue;
    Scope scope(g, unit.name);
    Value w = g.input(weight_slot(unit), InputKind::kState, weight_type(unit, parallelism.data));
    g.update(compute_weight_slot(unit), convert(g, w, unit.compute_dtype));
  }
  return g;
}

void exchange_stop_requests(Graph& g) {
  if (g.mesh().world_size() == 1) return;
  TensorType of_rank{{}, DType::kI64, g.mesh().all_axes()};
  Value here = g.input(kStopRequests, InputKind::kArgument, of_rank);
  g.output(kStopRequests, sum_over_marks(g, here));
}

Graph apply_program(const std::vector<FlatUnit>& units, const ProgramOptions& options,
                    const Optimizer& optimizer, const Graph& accumulate) {
  return ApplyBuilder(units, options, optimizer, accumulate).build();
}

}  // namespace tessera
