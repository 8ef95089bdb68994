#include "train/programs.h"

#include <map>

#include "autodiff/backward.h"
#include "ir/rewriter.h"
#include "ops/composite/adamw.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "passes/canonicalize.h"
#include "passes/far_state.h"
#include "passes/precision.h"

namespace tessera {
namespace {

// Appends the gradients of loss_sum and turns results into state updates; outputs are dropped. A
// slot takes its gradient where it is made: at the end, the gradients of all units would be live
// together.
Graph differentiate(const Graph& forward, const std::vector<FlatUnit>& units, bool first) {
  Graph g = forward;
  Value loss, count;
  for (const GraphOutput& output : g.outputs())
    (output.name == "loss_sum" ? loss : count) = output.value;
  std::vector<Value> weights;
  for (const FlatUnit& unit : units) weights.push_back(g.input_value(weight_slot(unit)));
  std::vector<Value> gradients = backward(g, sum_over_marks(g, loss), weights);
  std::map<Value, const FlatUnit*> unit_of;
  for (size_t u = 0; u < units.size(); ++u) {
    TESSERA_CHECK(gradients[u], cat("the loss does not depend on unit ", units[u].name));
    unit_of[gradients[u]] = &units[u];
  }
  Graph result(g.mesh());
  Rewriter rewriter(g, result);
  auto write = [&](const std::string& slot, Value value) {
    if (!first) {
      Value old = result.input(slot, InputKind::kState, result.type(value));
      value = add(result, old, value);
    }
    result.update(slot, value);
  };
  for (const Node& node : g.nodes()) {
    rewriter.copy(node);
    for (Value v : node.outputs) {
      auto unit = unit_of.find(v);
      if (unit != unit_of.end()) write(gradient_slot(*unit->second), rewriter(v));
    }
  }
  result.set_scope("");
  write("loss_sum", rewriter(loss));
  write("token_count", rewriter(count));
  return result;
}

std::vector<Pass> forward_passes(const ModelGraph& model, const std::vector<FlatUnit>& units,
                                 DType compute) {
  std::vector<Pass> passes;
  passes.push_back({"precision", [compute](const Graph& g) {
                      return compute == DType::kF32 ? g : precision(g, compute);
                    }});
  passes.push_back({"flat_units", [&model, &units](const Graph& g) {
                      return flat_units(g, model.parameters, units);
                    }});
  return passes;
}

Graph build_apply(const std::vector<FlatUnit>& units, const ProgramOptions& options) {
  Graph g;
  g.set_phase(Phase::kOptimizer);
  const TensorType scalar{{}, DType::kF32}, counter{{}, DType::kI64};
  Value lr = g.input("lr", InputKind::kArgument, scalar),
        max_norm = g.input("max_norm", InputKind::kArgument, scalar);
  Value loss_sum = sum_over_marks(g, g.input("loss_sum", InputKind::kState, scalar));
  Value count = sum_over_marks(g, g.input("token_count", InputKind::kState, counter));
  Value tokens =
      binary(g, BinaryKind::kMax, convert(g, count, DType::kF32), constant(g, scalar, 1));
  std::vector<Value> gradients;
  Value squares;
  for (const FlatUnit& unit : units) {
    Scope scope(g, unit.name);
    gradients.push_back(
        g.input(gradient_slot(unit), InputKind::kState, {{unit.size}, DType::kF32}));
    // Each squared sum carries its gradient's marks and is summed over those axes only.
    Value s = sum_over_marks(g, g.add_one(std::make_shared<SumSquares>(), {gradients.back()}));
    squares = squares ? add(g, squares, s) : s;
  }
  Value loss = div(g, loss_sum, tokens);
  Value norm = div(g, unary(g, UnaryKind::kSqrt, squares), tokens);
  Value ok = binary(g, BinaryKind::kAnd, unary(g, UnaryKind::kIsFinite, loss),
                    unary(g, UnaryKind::kIsFinite, norm));
  // min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_.
  Value clip = div(g, max_norm, add(g, norm, constant(g, scalar, 1e-6)));
  Value scale = div(g, binary(g, BinaryKind::kMin, clip, constant(g, scalar, 1)), tokens);
  Value step =
      add(g, g.input("optimizer_step", InputKind::kState, counter), convert(g, ok, DType::kI64));
  auto adamw = std::make_shared<AdamW>(options.beta1, options.beta2, options.epsilon);
  for (size_t u = 0; u < units.size(); ++u) {
    Scope scope(g, units[u].name);
    const TensorType flat{{units[u].size}, DType::kF32};
    auto slot = [&](const std::string& name) { return g.input(name, InputKind::kState, flat); };
    auto segments = static_cast<int64_t>(units[u].members.size());
    Value w = slot(weight_slot(units[u])), m = slot(moment_slot(units[u], 1)),
          v = slot(moment_slot(units[u], 2));
    Value begin = g.input(cat("segment_begin.", units[u].name), InputKind::kArgument,
                          {{segments}, DType::kI64});
    Value decay = g.input(cat("segment_decay.", units[u].name), InputKind::kArgument,
                          {{segments}, DType::kF32});
    auto next = g.add(adamw, {w, m, v, gradients[u], lr, scale, ok, step, begin, decay});
    g.update(weight_slot(units[u]), next[0]);
    g.update(moment_slot(units[u], 1), next[1]);
    g.update(moment_slot(units[u], 2), next[2]);
  }
  g.update("optimizer_step", step);
  g.output("loss", loss);
  g.output("gradient_norm", norm);
  g.output("ok", ok);
  g.output("token_count", count);
  return g;
}

}  // namespace

bool is_large_slot(const std::string& slot) {
  return slot.starts_with("weight.") || slot.starts_with("moment") || slot.starts_with("gradient.");
}

std::string gradient_slot(const FlatUnit& unit) { return cat("gradient.", unit.name); }
std::string moment_slot(const FlatUnit& unit, int which) {
  return cat("moment", which, ".", unit.name);
}

Programs build_programs(const ModelBuilder& builder, const ProgramOptions& options) {
  Programs programs;
  PassRunner runner(options.passes);
  ModelGraph model = builder(options.batch, options.length, ModelHead::kLoss);
  programs.parameters = model.parameters;
  programs.units = make_units(model.parameters);
  auto accumulate = [&](const std::string& name, bool first) {
    std::vector<Pass> passes = forward_passes(model, programs.units, options.compute);
    passes.push_back(
        {"autodiff", [&](const Graph& g) { return differentiate(g, programs.units, first); }});
    passes.push_back({"canonicalize", canonicalize, true});
    if (options.far_state)
      passes.push_back({"far_state", [](const Graph& g) { return far_state(g, is_large_slot); }});
    // Behind canonicalize: a forward node that its gradient subsumes is not there any more to be
    // recomputed.
    if (options.residency.changes_anything())
      passes.push_back(
          {"residency", [&](const Graph& g) { return residency(g, options.residency); }});
    return runner.run(name, model.graph, passes);
  };
  programs.accumulate_first = accumulate("accumulate_first", true);
  if (options.accumulates) programs.accumulate = accumulate("accumulate", false);

  ModelGraph validation = builder(options.validation_batch, options.length, ModelHead::kLoss);
  std::vector<Pass> passes = forward_passes(validation, programs.units, options.compute);
  passes.push_back({"canonicalize", canonicalize, true});
  if (options.far_state)
    passes.push_back({"far_state", [](const Graph& g) { return far_state(g, is_large_slot); }});
  programs.evaluate = runner.run("evaluate", validation.graph, passes);
  programs.apply = runner.run("apply", build_apply(programs.units, options),
                              {{"canonicalize", canonicalize, true}});
  programs.far_state = options.far_state;
  programs.timings = runner.timings();
  return programs;
}

Graph build_next_token(const ModelBuilder& builder, int64_t length, DType compute,
                       const PassOptions& pass_options) {
  PassRunner runner(pass_options);
  ModelGraph model = builder(1, length, ModelHead::kNext);
  std::vector<FlatUnit> units = make_units(model.parameters);
  std::vector<Pass> passes = forward_passes(model, units, compute);
  passes.push_back({"canonicalize", canonicalize, true});
  return runner.run("generate", model.graph, passes);
}

}  // namespace tessera
