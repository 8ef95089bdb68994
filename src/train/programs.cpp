#include "train/programs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "autodiff/backward.h"
#include "ir/marks.h"
#include "ir/rewriter.h"
#include "ops/collective/collective.h"
#include "ops/composite/adamw.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "passes/canonicalize.h"
#include "passes/kv_cache.h"
#include "train/frozen_parameters.h"
#include "train/job_slots.h"

namespace tessera {
namespace {

// The values by which each unit is differentiated. Usually one: its shard. With unsharded
// accumulation the gathered buffers, one for each use. Of a frozen unit none.
std::vector<std::vector<Value>> differentiated(const std::vector<FlatUnit>& units,
                                               const Parallelism& parallelism) {
  std::vector<std::vector<Value>> values(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    if (!units[u].trainable) continue;
    TESSERA_CHECK(units[u].shard, cat("nobody reads unit ", units[u].name));
    bool whole = parallelism.unsharded_accumulation && !parallelism.data.shard.empty();
    values[u] = whole ? units[u].gathered : std::vector{units[u].shard};
  }
  return values;
}

// The head's sum of squares as an output beside its loss.
Graph output_squares(const Graph& graph) {
  Graph result = graph;
  for (const Node& node : graph.nodes()) {
    if (node.op->name() == "linear_cross_entropy") result.output(kSquareSum, node.outputs[1]);
  }
  TESSERA_CHECK(result.outputs().size() == graph.outputs().size() + 1, "one head");
  return result;
}

// What loss_sum is multiplied by beside the loss scale: the number of tokens, as a power of two so
// that it changes no bit.
double one_token_share(const ProgramOptions& options) {
  return std::exp2(-std::floor(std::log2(static_cast<double>(options.batch * options.length))));
}

// Appends the gradients of loss_sum + z_loss square_sum, times the loss scale where there is one,
// and turns results into state updates; outputs are dropped. A slot takes its gradient where it is
// made: at the end, the gradients of all units would be live together.
Graph differentiate(const Graph& forward, const std::vector<FlatUnit>& units,
                    const ProgramOptions& options, bool first) {
  Graph g = forward;
  std::map<std::string, Value> results;
  for (const GraphOutput& output : g.outputs()) results[output.name] = output.value;
  Value total = results.at(kLossSum);
  if (auto squares = results.find(kSquareSum); squares != results.end())
    total = add(g, total, mul(g, squares->second, constant_like(g, total, options.z_loss)));
  if (options.loss_scaling) {
    TensorType scalar{{}, g.type(total).dtype};
    Value scale = g.input(kLossScale, InputKind::kState, scalar);
    total = mul(g, total, mul(g, scale, constant(g, scalar, one_token_share(options))));
  }
  std::vector<std::vector<Value>> by_unit = differentiated(units, options.parallelism);
  std::vector<Value> wrt;
  for (const auto& values : by_unit) wrt.insert(wrt.end(), values.begin(), values.end());
  std::vector<Value> gradients = backward(g, sum_over_marks(g, total), wrt);
  std::map<Value, const FlatUnit*> unit_of;
  size_t next = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t k = 0; k < by_unit[u].size(); ++k, ++next) {
      TESSERA_CHECK(gradients[next], cat("the loss does not depend on unit ", units[u].name));
      unit_of[gradients[next]] = &units[u];
    }
  }
  Graph result(g.mesh());
  Rewriter rewriter(g, result);
  std::map<std::string, Value> sums;
  auto collect = [&](const std::string& slot, Value value) {
    Value& sum = sums[slot];
    if (!sum && !first) sum = result.input(slot, InputKind::kState, result.type(value));
    sum = sum ? add(result, sum, value) : value;
  };
  for (const Node& node : g.nodes()) {
    rewriter.copy(node);
    for (Value v : node.outputs) {
      auto unit = unit_of.find(v);
      if (unit != unit_of.end()) collect(gradient_slot(*unit->second), rewriter(v));
    }
  }
  result.set_scope("");
  for (const StateUpdate& update : g.updates()) result.update(update.slot, rewriter(update.value));
  for (const auto& [name, value] : results) collect(name, rewriter(value));
  for (const auto& [slot, value] : sums) result.update(slot, value);
  return result;
}

// Without the updates of the model's own state: what is only evaluated trains nothing.
Graph read_only(const Graph& graph) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  for (const Node& node : graph.nodes()) rewriter.copy(node);
  for (const GraphOutput& output : graph.outputs())
    result.output(output.name, rewriter(output.value));
  return result;
}

// Sums of the results over all ranks, for the host.
Graph sum_outputs(const Graph& graph) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  for (const Node& node : graph.nodes()) rewriter.copy(node);
  result.set_scope("");
  for (const GraphOutput& output : graph.outputs())
    rewriter.map(output.value, sum_over_marks(result, rewriter(output.value)));
  rewriter.finish();
  return result;
}

// From a model's forward pass to that of one rank on flat state.
class ForwardPasses {
 public:
  ForwardPasses(const ModelGraph& model, DType compute, const Parallelism& parallelism,
                std::vector<ParameterPart>& parts, std::vector<FlatUnit>& units,
                Masters masters = Masters::kF32)
      : model_(model),
        compute_(compute),
        masters_(masters),
        p_(parallelism),
        parts_(parts),
        units_(units) {}

  std::vector<Pass> list() {
    std::vector<Pass> passes;
    passes.push_back({"precision", [this](const Graph& g) {
                        return compute_ == DType::kF32 ? g : precision(g, compute_, masters_);
                      }});
    if (p_.mesh.world_size() > 1) {
      passes.push_back({"tensor_parallel", [this](const Graph& g) {
                          return tensor_parallel(g, model_.parameters, parts_, p_.mesh, p_.tp,
                                                 p_.sequence_parallel);
                        }});
    }
    passes.push_back({"flat_units", [this](const Graph& g) {
                        units_ = make_units(g, model_.parameters, parts_, p_.data);
                        return flat_units(g, model_.parameters, units_, p_.data, p_.reduce_dtype);
                      }});
    return passes;
  }

 private:
  const ModelGraph& model_;
  DType compute_;
  Masters masters_;
  const Parallelism& p_;
  std::vector<ParameterPart>& parts_;
  std::vector<FlatUnit>& units_;
};

// The program of one update, on the slots as `accumulate` leaves them. Frozen units have no part.
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
    Value ok = binary(g_, BinaryKind::kAnd, unary(g_, UnaryKind::kIsFinite, loss),
                      unary(g_, UnaryKind::kIsFinite, norm));
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
    if (loss_scale) {
      g_.output("loss_scale", loss_scale);
      update_loss_scale(loss_scale, ok);
    }
    if (slots_.contains(kSquareSum)) {
      Value squares = div(g_, sum_over_marks(g_, slot(kSquareSum)), tokens);
      g_.output("z_loss", mul(g_, squares, constant(g_, scalar, options_.z_loss)));
    }
    return std::move(g_);
  }

 private:
  Value slot(const std::string& name) { return g_.input(name, InputKind::kState, slots_.at(name)); }

  void update_loss_scale(Value scale, Value ok) {
    const LossScaling& s = *options_.loss_scaling;
    auto number = [&](double x) { return constant_like(g_, scale, x); };
    const TensorType counter{{}, DType::kI64};
    auto count = [&](int64_t n) { return constant(g_, counter, static_cast<double>(n)); };
    Value good = add(g_, g_.input(kGoodSteps, InputKind::kState, counter), count(1));
    Value due = compare(g_, Comparison::kGe, good, count(s.interval));
    Value twice = binary(g_, BinaryKind::kMin, mul(g_, scale, number(2)), number(s.highest));
    Value half = binary(g_, BinaryKind::kMax, mul(g_, scale, number(0.5)), number(s.lowest));
    g_.update(kLossScale, select(g_, ok, select(g_, due, twice, scale), half));
    g_.update(kGoodSteps, select(g_, ok, select(g_, due, count(0), good), count(0)));
  }

  // An accumulator may vary over axes that its parameter does not: it is summed over exactly those,
  // once a step.
  Value reduced_gradient(const FlatUnit& unit) {
    Scope scope(g_, unit.name);
    Value accumulator = slot(gradient_slot(unit)), gradient = accumulator;
    AxisSet own = weight_type(unit, p_.data).varying;
    if (g_.shape(gradient)[0] != unit.shard_size) {
      gradient = convert(g_, gradient, p_.reduce_dtype);
      gradient = reduce_scatter(g_, gradient, p_.data.shard, 0, unit.dtype);
    }
    AxisSet extra = g_.type(gradient).varying - own;
    if (extra.empty()) return gradient;
    gradient = g_.add_one(std::make_shared<AllReduceOp>(extra, Reduction::kSum), {gradient});
    // In the accumulator's own bytes where it has the size: nothing else needs them until the next
    // step begins.
    if (g_.shape(accumulator)[0] == unit.shard_size)
      g_.update(gradient_slot(unit), vary(g_, gradient, extra));
    return gradient;
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
                                                     .segment_decay = decay});
    TESSERA_CHECK(next.size() == 1 + slots.size(), unit.name);
    g_.update(weights, next[0]);
    for (size_t k = 0; k < slots.size(); ++k) g_.update(slots[k].name(), next[1 + k]);
  }

  std::vector<FlatUnit> units_;
  const ProgramOptions& options_;
  const Optimizer& optimizer_;
  const Parallelism& p_;
  Graph g_;
  std::map<std::string, TensorType> slots_;
};

}  // namespace

Programs build_programs(const ModelBuilder& unfrozen, const ProgramOptions& options) {
  ModelBuilder builder = with_frozen(unfrozen, options.freeze);
  Programs programs;
  programs.parallelism = options.parallelism;
  const Parallelism& parallelism = options.parallelism;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(options.optimizer);
  PassRunner runner(options.passes);
  ModelGraph model = builder(options.batch, options.length, ModelHead::kTraining);
  programs.parameters = model.parameters;
  programs.parts = parameter_parts(model.parameters, parallelism.mesh, parallelism.tp);
  ForwardPasses forward(model, options.compute, parallelism, programs.parts, programs.units);
  auto add_overlap = [&](std::vector<Pass>& passes) {
    if (parallelism.data.shard.empty()) return;
    passes.push_back(
        {"overlap", [&](const Graph& g) { return overlap(g, options.overlap); }, true});
  };
  auto far = [&](const Graph& g) { return with_far_units(g, programs.units, *optimizer); };
  auto accumulate = [&](const std::string& name, bool first) {
    std::vector<Pass> passes = forward.list();
    if (options.z_loss != 0) passes.insert(passes.begin(), Pass{"z_loss", output_squares});
    passes.push_back({"autodiff", [&](const Graph& g) {
                        return differentiate(g, programs.units, options, first);
                      }});
    passes.push_back({"canonicalize", canonicalize, true});
    if (options.far_state) passes.push_back({"far_state", far});
    // Behind canonicalize: a forward node that its gradient subsumes is not there any more to be
    // recomputed.
    if (options.residency.changes_anything())
      passes.push_back(
          {"residency", [&](const Graph& g) { return residency(g, options.residency); }});
    add_overlap(passes);
    return runner.run(name, model.graph, passes);
  };
  programs.accumulate_first = accumulate("accumulate_first", true);
  if (options.accumulates) programs.accumulate = accumulate("accumulate", false);

  ModelGraph validation = builder(options.validation_batch, options.length, ModelHead::kLoss);
  std::vector<FlatUnit> units;
  ForwardPasses evaluate(validation, options.compute, parallelism, programs.parts, units);
  std::vector<Pass> passes = evaluate.list();
  if (parallelism.mesh.world_size() > 1) passes.push_back({"sum_outputs", sum_outputs});
  passes.push_back({"canonicalize", canonicalize, true});
  if (options.far_state) passes.push_back({"far_state", far});
  add_overlap(passes);
  programs.evaluate = runner.run("evaluate", read_only(validation.graph), passes);
  Graph apply =
      ApplyBuilder(programs.units, options, *optimizer, programs.accumulate_first).build();
  programs.apply = runner.run("apply", apply, {{"canonicalize", canonicalize, true}});
  programs.slots = slots_of({&programs.accumulate_first, &programs.apply, &programs.evaluate},
                            programs.units, *optimizer);
  programs.far_state = options.far_state;
  programs.has_z_loss = options.z_loss != 0;
  programs.loss_scaling = options.loss_scaling;
  programs.timings = runner.timings();
  return programs;
}

Programs build_state_layout(const ModelBuilder& unfrozen, const ProgramOptions& options) {
  ModelBuilder builder = with_frozen(unfrozen, options.freeze);
  Programs programs;
  programs.parallelism = options.parallelism;
  PassRunner runner(options.passes);
  ModelGraph model = builder(options.batch, options.length, ModelHead::kLoss);
  programs.parameters = model.parameters;
  programs.parts =
      parameter_parts(model.parameters, options.parallelism.mesh, options.parallelism.tp);
  ForwardPasses forward(model, options.compute, options.parallelism, programs.parts,
                        programs.units);
  runner.run("state", model.graph, forward.list());
  return programs;
}

NextToken build_next_token(const ModelBuilder& builder, const NextTokenOptions& options) {
  PassRunner runner(options.passes);
  ModelGraph model = builder(1, options.length, ModelHead::kNext);
  NextToken result;
  result.parameters = model.parameters;
  Parallelism one_rank;
  std::vector<ParameterPart> whole = parameter_parts(model.parameters, one_rank.mesh, one_rank.tp);
  ForwardPasses forward(model, options.compute, one_rank, whole, result.units, options.masters);
  std::vector<Pass> passes = forward.list();
  if (options.cache > 0)
    passes.push_back({"kv_cache", [&](const Graph& g) { return kv_cache(g, options.cache); }});
  passes.push_back({"canonicalize", canonicalize, true});
  result.graph = runner.run("generate", read_only(model.graph), passes);
  return result;
}

}  // namespace tessera
