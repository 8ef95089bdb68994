#include "programs/programs.h"

#include "ir/marks.h"
#include "ir/rewriter.h"
#include "passes/canonicalize.h"
#include "passes/compute_weights.h"
#include "passes/document_mask.h"
#include "passes/kv_cache.h"
#include "passes/precision.h"
#include "programs/apply_program.h"
#include "programs/frozen_parameters.h"
#include "programs/gradient_program.h"
#include "programs/job_slots.h"

namespace tessera {
namespace {

// The head's sum of squares as an output beside its loss.
Graph output_squares(const ModelGraph& model) {
  TESSERA_CHECK(model.square_sum, "a head with a loss");
  Graph result = model.graph;
  result.output(kSquareSum, model.square_sum);
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
  exchange_stop_requests(result);
  return result;
}

// Weights that adapters are trained for came rounded, and are kept for these alone: they need no
// masters. f16 holds less than the files do.
Masters masters_of(const ModelGraph& model, DType compute) {
  return model.adapted() && compute == DType::kBF16 ? Masters::kTrained : Masters::kF32;
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
                        return compute_ == DType::kF32 ? g : precision(g, compute_);
                      }});
    if (p_.mesh.world_size() > 1) {
      passes.push_back({"tensor_parallel", [this](const Graph& g) {
                          return tensor_parallel(g, model_.parameters, parts_, p_.mesh, p_.tp,
                                                 p_.sequence_parallel);
                        }});
    }
    passes.push_back({"flat_units", [this](const Graph& g) {
                        units_ = make_units(g, model_.parameters, parts_, p_.data, masters_);
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

}  // namespace

MicroBatchProgram Programs::micro_batch(bool first, bool last) const {
  if (last && !accumulate_last.nodes().empty()) {
    if (first) return {"accumulate_only", accumulate_only};
    return {"accumulate_last", accumulate_last};
  }
  if (first) return {"accumulate_first", accumulate_first};
  return {"accumulate", accumulate};
}

namespace {

// Makes the programs of a job, one after the other.
class ProgramBuilder {
 public:
  ProgramBuilder(const ModelBuilder& unfrozen, const ProgramOptions& options)
      : builder_(with_frozen(unfrozen, options.freeze)),
        options_(options),
        optimizer_(make_optimizer(options.optimizer)),
        runner_(options.passes) {
    programs_.parallelism = options.parallelism;
  }

  Programs build() {
    if (options_.trains) add_gradients();
    if (options_.evaluates) add_evaluation();
    if (options_.trains) add_update();
    programs_.slots = slots_of({&programs_.accumulate_first, &programs_.apply, &programs_.evaluate},
                               programs_.units, *optimizer_);
    programs_.far_state = options_.far_state;
    programs_.timings = runner_.timings();
    return std::move(programs_);
  }

 private:
  const Parallelism& parallelism() const { return programs_.parallelism; }

  void take_parameters(const ModelGraph& model) {
    programs_.parameters = model.parameters;
    programs_.parts = parameter_parts(model.parameters, parallelism().mesh, parallelism().tp);
  }

  void add_gradients() {
    ModelGraph model = builder_(options_.batch, options_.length, ModelHead::kTraining);
    take_parameters(model);
    programs_.accumulate_first =
        accumulate(model, "accumulate_first", {.first = true, .last = !options_.accumulates});
    if (options_.accumulates) {
      programs_.accumulate = accumulate(model, "accumulate", {.first = false, .last = false});
      if (reduces_gradients(programs_.accumulate, programs_.units, parallelism().data)) {
        programs_.accumulate_last =
            accumulate(model, "accumulate_last", {.first = false, .last = true});
        programs_.accumulate_only =
            accumulate(model, "accumulate_only", {.first = true, .last = true});
      }
    }
    programs_.has_z_loss = options_.z_loss != 0;
    programs_.loss_scaling = options_.loss_scaling;
  }

  Graph accumulate(const ModelGraph& model, const std::string& name, Turn turn) {
    ForwardPasses forward(model, options_.compute, parallelism(), programs_.parts, programs_.units,
                          masters_of(model, options_.compute));
    std::vector<Pass> passes = forward.list();
    add_documents(passes);
    if (options_.z_loss != 0)
      passes.insert(passes.begin(),
                    Pass{"z_loss", [&](const Graph&) { return output_squares(model); }});
    passes.push_back({"autodiff", [&](const Graph& g) {
                        return differentiate(g, programs_.units, options_, turn);
                      }});
    add_compute_weights(passes);
    passes.push_back({"canonicalize", canonicalize});
    add_far_state(passes, programs_.units);
    // Behind canonicalize: a forward node that its gradient subsumes is not there any more to be
    // recomputed.
    if (options_.residency.changes_anything())
      passes.push_back(
          {"residency", [&](const Graph& g) { return residency(g, options_.residency); }});
    add_overlap(passes);
    return runner_.run(name, model.graph, passes);
  }

  void add_evaluation() {
    ModelGraph model = builder_(options_.validation_batch, options_.length, ModelHead::kLoss);
    if (!options_.trains) take_parameters(model);
    const bool masters = options_.trains || options_.compute != DType::kBF16;
    std::vector<FlatUnit> units;
    ForwardPasses forward(model, options_.compute, parallelism(), programs_.parts, units,
                          masters ? masters_of(model, options_.compute) : Masters::kNone);
    std::vector<Pass> passes = forward.list();
    add_documents(passes);
    if (parallelism().mesh.world_size() > 1) passes.push_back({"sum_outputs", sum_outputs});
    if (options_.trains) add_compute_weights(passes);
    passes.push_back({"canonicalize", canonicalize});
    add_far_state(passes, units);
    add_overlap(passes);
    programs_.evaluate = runner_.run("evaluate", read_only(model.graph), passes);
    if (!options_.trains) programs_.units = std::move(units);
  }

  void add_update() {
    Graph apply = apply_program(programs_.units, options_, *optimizer_, programs_.accumulate_first);
    programs_.apply = runner_.run("apply", apply, {{"canonicalize", canonicalize}});
    programs_.round_weights = round_weights_program(programs_.units, parallelism());
  }

  void add_documents(std::vector<Pass>& passes) const {
    if (options_.document_mask) passes.insert(passes.begin(), {"document_mask", document_mask});
  }

  void add_compute_weights(std::vector<Pass>& passes) const {
    passes.push_back({"compute_weights",
                      [this](const Graph& g) { return read_compute_weights(g, programs_.units); }});
  }

  void add_far_state(std::vector<Pass>& passes, const std::vector<FlatUnit>& units) const {
    if (!options_.far_state) return;
    passes.push_back({"far_state", [this, &units](const Graph& g) {
                        return with_far_units(g, units, *optimizer_);
                      }});
  }

  void add_overlap(std::vector<Pass>& passes) const {
    if (parallelism().data.shard.empty()) return;
    passes.push_back({"overlap", [this](const Graph& g) { return overlap(g, options_.overlap); }});
  }

  ModelBuilder builder_;
  const ProgramOptions& options_;
  std::unique_ptr<Optimizer> optimizer_;
  PassRunner runner_;
  Programs programs_;
};

}  // namespace

Programs build_programs(const ModelBuilder& model, const ProgramOptions& options) {
  return ProgramBuilder(model, options).build();
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
  ForwardPasses forward(model, options.compute, options.parallelism, programs.parts, programs.units,
                        masters_of(model, options.compute));
  runner.run("state", model.graph, forward.list());
  return programs;
}

NextToken build_next_token(const ModelBuilder& builder, const NextTokenOptions& options) {
  PassRunner runner(options.passes);
  ModelGraph model = builder(options.batch, options.length, ModelHead::kNext);
  NextToken result;
  result.parameters = model.parameters;
  Parallelism one_rank;
  std::vector<ParameterPart> whole = parameter_parts(model.parameters, one_rank.mesh, one_rank.tp);
  ForwardPasses forward(model, options.compute, one_rank, whole, result.units, options.masters);
  std::vector<Pass> passes = forward.list();
  const KvCache cache{options.cache, options.rows, options.batch};
  if (options.cache > 0)
    passes.push_back({"kv_cache", [&](const Graph& g) { return kv_cache(g, cache); }});
  passes.push_back({"canonicalize", canonicalize});
  result.graph = runner.run("generate", read_only(model.graph), passes);
  return result;
}

}  // namespace tessera
