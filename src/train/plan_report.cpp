#include <algorithm>
#include <map>

#include "ir/marks.h"
#include "ops/collective/collective.h"
#include "train/frozen_parameters.h"
#include "train/model_options.h"
#include "train/option_table.h"
#include "train/training_run.h"

namespace tessera {

namespace {

ResidencyOptions residency_options(const RunConfig& config, const Parallelism& parallelism) {
  ResidencyOptions options;
  if (config.activation_checkpointing) {
    auto share = parse_layer_share(config.selective_checkpointing);
    TESSERA_CHECK(share, config.selective_checkpointing);
    options.share_numerator = share->numerator;
    options.share_denominator = share->denominator;
  }
  options.policy =
      config.checkpointing_policy == "op" ? CheckpointPolicy::kOp : CheckpointPolicy::kLayer;
  options.regather = parallelism.regather;
  options.offload = config.offload_activations;
  options.horizon = config.activation_loading_horizon;
  return options;
}

// Gathers in flight are bounded to one beside the layer in use, or not bounded: two.
OverlapOptions overlap_options(const RunConfig& config) {
  int ahead = config.limit_all_gathers ? 1 : 2;
  return {config.forward_prefetch ? ahead : 0,
          config.backward_fetch_policy == "backward_pre" ? ahead : 0};
}

}  // namespace

DType compute_dtype(const RunConfig& config) {
  return config.use_fp16 ? DType::kF16 : config.bf16 ? DType::kBF16 : DType::kF32;
}

ProgramOptions program_options(const RunConfig& config, const Parallelism& parallelism) {
  ProgramOptions options;
  options.parallelism = parallelism;
  options.batch = config.train_batch_size;
  options.length = config.max_context_width;
  options.validation_batch = config.val_batch_size;
  options.compute = compute_dtype(config);
  if (options.compute == DType::kF16) options.loss_scaling = LossScaling{};
  options.accumulates = config.gradient_accumulation_steps > 1;
  options.z_loss = config.z_loss;
  options.freeze = config.freeze;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.residency = residency_options(config, parallelism);
  options.overlap = overlap_options(config);
  options.far_state = config.cpu_offload;
  options.passes.disabled = config.disable_pass;
  options.passes.dump_directory = config.dump_pass;
  return options;
}

namespace {

double sum_flops(const Graph& graph, bool recomputed) {
  double flops = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op->tier() == Tier::kInput || !node.op->view_offsets().empty() ||
        recomputed != (node.phase == Phase::kRecompute))
      continue;
    std::vector<TensorType> inputs, outputs;
    for (Value v : node.inputs) inputs.push_back(graph.type(v));
    for (Value v : node.outputs) outputs.push_back(graph.type(v));
    flops += node.op->cost(inputs, outputs).flops;
  }
  return flops;
}

}  // namespace

double program_flops(const Graph& graph) { return sum_flops(graph, false); }
double recomputed_flops(const Graph& graph) { return sum_flops(graph, true); }

namespace {

std::string line(const std::string& label, int64_t bytes, const std::string& note = "") {
  return format("  %-28s %12s  %s\n", label.c_str(), format_bytes(bytes).c_str(), note.c_str());
}

// Parallelism of a planned job; of commands that run on one rank, that rank.
Parallelism planned_parallelism(const RunConfig& config, const ModelConfig& model) {
  int64_t least =
      std::max<int64_t>(1, config.shard_degree.value_or(1)) * config.tensor_parallel_degree;
  int64_t world = config.world.value_or(least);
  return make_parallelism(config, model, world, std::min(world, config.ranks_per_host));
}

std::string heading(const RunConfig& config, const ModelConfig& model, int64_t trainable) {
  int64_t parameters = parameter_count(model);
  std::string of_them = trainable == parameters
                            ? ""
                            : cat(", of which ", trainable, " (",
                                  format_count(static_cast<double>(trainable)), ") are trained");
  DType compute = compute_dtype(config);
  return cat("Model ", name(model.model_type), ": ", parameters, " parameters (",
             format_count(static_cast<double>(parameters)), ")", of_them, ", ", model.num_layers,
             " layers, width ", model.hidden_width, ", ", model.num_heads, " heads, ",
             model.num_key_value_heads, " key/value heads, vocabulary ", model.vocab_size,
             "\nStep: ", config.gradient_accumulation_steps, " x ", config.train_batch_size,
             " windows of ", config.max_context_width,
             " tokens (--gradient_accumulation_steps x --train_batch_size, --max_context_width), ",
             compute == DType::kF32 ? "f32" : cat(name(compute), " over f32 masters"), "\n\n");
}

std::string memory_text(const Session& session) {
  Session::Memory memory = session.planned_memory();
  std::string text = "Memory of one rank, to the byte what training allocates:\n";
  text += line("parameters (f32)", memory.parameters);
  text += line("moments (f32)", memory.optimizer);
  text += line("gradients (f32)", memory.gradients);
  text += line("counters", memory.counters);
  text += line("arena", memory.arena, "the largest of the programs below; they share it");
  if (memory.far_arena > 0) text += line("far arena", memory.far_arena, "in host memory");
  text += line("total", memory.total(), cat(memory.total(), " bytes"));
  if (memory.far() > 0) {
    text += line("  of it near", memory.total() - memory.far());
    text += line("  of it far", memory.far(),
                 memory.far_state ? "parameters, moments, gradients and the far arena" : "");
  }
  const Session::Program* largest = nullptr;
  text += "\nPrograms:\n";
  for (const Session::Program& p : session.compiled()) {
    const Plan& plan = p.executable->plan();
    text += cat("  ", p.name, ": ", describe(p.executable->graph(), plan), "\n");
    if (!largest || plan.arena_bytes > largest->executable->plan().arena_bytes) largest = &p;
  }
  text += cat("\nLive at the peak of ", largest->name, ":\n");
  const Executable& peak = *largest->executable;
  for (const MemoryCategory& c : memory_at_peak(peak.graph(), peak.plan())) {
    text += line(c.name, c.bytes);
  }
  return text;
}

// Bytes that one rank sends in a step, by the axes over which it sends.
class WireTraffic {
 public:
  void add(const Graph& graph, double times) {
    for (const Node& node : graph.nodes()) {
      if (!node.op->communicates()) continue;
      AxisSet axes = node.op->name() == "all_reduce"
                         ? static_cast<const AllReduceOp&>(*node.op).axes()
                         : static_cast<const Collective&>(*node.op).axes();
      auto ranks = static_cast<double>(graph.mesh().size(axes));
      double bytes = static_cast<double>(
          std::max(graph.type(node.inputs[0]).bytes(), graph.type(node.outputs[0]).bytes()));
      // By direct exchange; an all-reduce is a reduce-scatter and an all-gather.
      double sent = bytes * (ranks - 1) / ranks * (node.op->name() == "all_reduce" ? 2 : 1);
      Row& row = rows_[{graph.mesh().to_string(axes), std::string(node.op->name())}];
      row.bytes += sent * times;
      row.calls += times;
      row.ranks = ranks;
    }
  }
  std::string text() const {
    if (rows_.empty()) return "";
    std::string text = "\nOn the wire, what one rank sends in a step:\n";
    for (const auto& [key, row] : rows_) {
      text += line(cat(key.first, " ", key.second), static_cast<int64_t>(row.bytes),
                   format("%.0f calls, %.0f ranks", row.calls, row.ranks));
    }
    return text;
  }

 private:
  struct Row {
    double bytes = 0, calls = 0, ranks = 0;
  };
  std::map<std::pair<std::string, std::string>, Row> rows_;
};

std::string wire_text(const Session& session, const RunConfig& config) {
  const Programs& programs = session.programs();
  WireTraffic traffic;
  traffic.add(programs.accumulate_first, 1);
  traffic.add(programs.accumulate, static_cast<double>(config.gradient_accumulation_steps - 1));
  traffic.add(programs.apply, 1);
  return traffic.text();
}

std::string arithmetic_text(const Session& session, const RunConfig& config) {
  auto micro_batches = static_cast<double>(config.gradient_accumulation_steps);
  double flops = program_flops(session.programs().accumulate_first) * micro_batches +
                 program_flops(session.programs().apply);
  double tokens =
      micro_batches * static_cast<double>(config.train_batch_size * config.max_context_width);
  int64_t parameters = 0;
  for (const Parameter& p : session.programs().parameters) parameters += num_elements(p.shape);
  return format("\nArithmetic: %.4g FLOP a step, %.4g a token (6 x parameters = %.4g)\n", flops,
                flops / tokens, 6.0 * static_cast<double>(parameters));
}

// What computing values again saves and costs, beside the same options without it.
std::string recomputation_text(const Session& session, const ModelConfig& model,
                               ProgramOptions options, const CompileFunction& compile) {
  options.residency.share_numerator = 0;
  options.residency.regather = false;
  options.passes.dump_directory.clear();
  Programs keeping = build_programs(model_builder(model), options);
  int64_t kept = compile(keeping.accumulate_first)->plan().arena_bytes;
  int64_t arena = session.compiled().front().executable->plan().arena_bytes;
  double again = recomputed_flops(session.programs().accumulate_first);
  return format(
      "Recomputation: arena of accumulate_first %s, without it %s; adds %.4g FLOP a micro-batch "
      "(%.1f %%)\n",
      format_bytes(arena).c_str(), format_bytes(kept).c_str(), again,
      100 * again / program_flops(session.programs().accumulate_first));
}

std::string verdict(int64_t need, int64_t memory) {
  std::string limit = cat("--memory ", format_bytes(memory));
  if (need > memory)
    return cat("\nDoes not fit: ", format_bytes(need - memory), " more than ", limit, "\n");
  return cat("\nFits in ", limit, ": ", format_bytes(memory - need), " are left\n");
}

// Of a family without a graph only what follows from the number of parameters is known.
PlanReport weights_report(const RunConfig& config, const ModelConfig& model) {
  int64_t bytes = 4 * parameter_count(model);
  std::string text = heading(config, model, parameter_count(model));
  text += cat("Memory of one rank, without activations: this family is not built yet",
              config.freeze.empty() ? "" : "; all parameters are counted as trained", ".\n");
  text += line("parameters (f32)", bytes);
  text += line("moments (f32)", 2 * bytes);
  text += line("gradients (f32)", bytes);
  bool too_much = config.memory && 4 * bytes > *config.memory;
  if (too_much) text += verdict(4 * bytes, *config.memory);
  return {text, !too_much};
}

}  // namespace

PlanReport plan_report(const RunConfig& config, const ModelConfig& model,
                       const CompileFunction& compile) {
  if (!is_built(model.model_type)) return weights_report(config, model);
  ProgramOptions options = program_options(config, planned_parallelism(config, model));
  Session session(build_programs(model_builder(model), options), compile);
  std::string text = heading(config, model, trainable_count(session.programs().parameters)) +
                     memory_text(session) + wire_text(session, config) +
                     arithmetic_text(session, config);
  if (options.residency.share_numerator > 0 || options.residency.regather)
    text += recomputation_text(session, model, options, compile);
  int64_t need = session.planned_memory().total();
  if (config.memory) text += verdict(need, *config.memory);
  text += "\nPasses:\n";
  for (const PassTiming& t : session.programs().timings) {
    text += format("  %-32s %8.1f ms  %zu -> %zu nodes\n", t.pass.c_str(), t.seconds * 1e3,
                   t.nodes_before, t.nodes_after);
  }
  return {text, !config.memory || need <= *config.memory};
}

}  // namespace tessera
