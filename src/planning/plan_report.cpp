#include "planning/plan_report.h"

#include <algorithm>

#include "base/file.h"
#include "models/model_family.h"
#include "planning/memory_chart.h"
#include "planning/plan_verdict.h"
#include "planning/roofline.h"
#include "programs/frozen_parameters.h"

namespace tessera {
namespace {

std::string line(const std::string& label, int64_t bytes, const std::string& note = "") {
  return format("  %-28s %12s  %s\n", label.c_str(), format_bytes(bytes).c_str(), note.c_str());
}

// Whether weights that are not trained are kept in the dtype of compute (Masters::kTrained).
bool has_narrow_weights(const RunConfig& config, const ModelConfig& model) {
  return model.lora.rank > 0 && compute_dtype(config) == DType::kBF16;
}

std::string heading(const RunConfig& config, const ModelConfig& model, int64_t trainable,
                    const Parallelism& parallelism) {
  int64_t parameters = parameter_count(model);
  std::string of_them =
      model.lora.rank > 0
          ? cat(" and adapters of rank ", model.lora.rank, " with ", trainable, " (",
                format_count(static_cast<double>(trainable)), "), which are trained")
      : trainable == parameters
          ? ""
          : cat(", of which ", trainable, " (", format_count(static_cast<double>(trainable)),
                ") are trained");
  DType compute = compute_dtype(config);
  int64_t world = parallelism.mesh.world_size();
  std::string ranks = world == 1 ? "one rank (--world)"
                                 : cat(world, " ranks, ", parallelism.to_text(), ", ",
                                       std::min(world, config.ranks_per_host),
                                       " on a host (--world, --ranks_per_host)");
  std::string data_ranks =
      parallelism.data_ranks() > 1 ? cat(" on each of ", parallelism.data_ranks(), " ranks") : "";
  std::string computed = compute == DType::kF32 ? "f32" : std::string(name(compute));
  std::string batch =
      config.eval_only
          ? cat("\nEvaluation: ", config.val_batch_size, " windows of ", config.max_context_width,
                " tokens (--eval_only, --val_batch_size, --max_context_width)", data_ranks, ", ",
                computed, "\n")
          : cat("\nStep: ", config.gradient_accumulation_steps, " x ", config.train_batch_size,
                " windows of ", config.max_context_width,
                " tokens (--gradient_accumulation_steps x --train_batch_size, "
                "--max_context_width)",
                data_ranks, ", ", computed, compute == DType::kF32 ? "" : " over f32 masters",
                has_narrow_weights(config, model) ? " of the adapters" : "", "\n");
  return cat("Model ", name(model.model_type), ": ", parameters, " parameters (",
             format_count(static_cast<double>(parameters)), ")", of_them, ", ", model.num_layers,
             " layers, width ", model.hidden_width, ", ", model.num_heads, " heads, ",
             model.num_key_value_heads, " key/value heads, vocabulary ", model.vocab_size,
             "\nWorld: ", ranks, batch);
}

// `accuracy`: "exact", where lines beside these are not.
std::string state_lines(const RunConfig& config, const ModelConfig& model,
                        const Session::Memory& memory, const std::string& accuracy = "") {
  if (config.eval_only)
    return line(compute_dtype(config) == DType::kBF16 ? "parameters (bf16)" : "parameters (f32)",
                memory.parameters, accuracy);
  const std::string parameters =
      has_narrow_weights(config, model)
          ? line("parameters", memory.parameters,
                 cat(accuracy, accuracy.empty() ? "" : ", ", "bf16, of the adapters f32"))
          : line("parameters (f32)", memory.parameters, accuracy);
  const std::string compute = memory.compute_weights == 0
                                  ? ""
                                  : line(cat("compute weights (", name(compute_dtype(config)), ")"),
                                         memory.compute_weights, accuracy);
  return parameters + compute + line("moments (f32)", memory.optimizer, accuracy) +
         line("gradients (f32)", memory.gradients, accuracy);
}

// Of a device with a data sheet: how well the arena is known.
std::string arena_accuracy(const RunConfig& config, const ModelConfig& model,
                           const PlanTarget& target) {
  if (!target.without_libraries) return "exact";
  RunConfig silent = config;
  silent.dump_pass.clear();
  PlanTarget without = target;
  without.backend = target.without_libraries;
  return cat(
      "estimate: the most that cublasLt may take for a product that nobody measured is in it; "
      "exact without cublasLt: ",
      format_bytes(plan_session(silent, model, without)->planned_memory().arena));
}

// What lies on a rank's GPU beside the plan.
std::string device_lines(const JobPlan& plan, const DeviceSheet& sheet) {
  const MemoryBeside beside = plan.beside();
  std::string text =
      line("CUDA context and code", beside.context, "estimate, beside the plan; not measured");
  if (beside.exchanges > 0)
    text += line("buffers of NCCL", beside.exchanges,
                 cat("estimate, beside the plan: ", kCommunicatorsOfGroup * plan.groups,
                     " communicators, two for each group of ranks that exchange"));
  text += line("lost to the driver's pieces", beside.pieces,
               cat("estimate, beside the plan: at most, with ", plan.slots, " slots of state"));
  return text + line("on the GPU", checked_add(plan.memory.near(), beside.total()),
                     cat("estimate, of ", format_bytes(sheet.memory), " that programs find on an ",
                         sheet.name));
}

std::string other_device_text(const RunConfig& config) {
  if (config.target != "none") return "";
  if (config.device_type == "cuda") return " (another GPU: --target)";
  return config.device_type == "xla" ? " (what it says for a GPU: --target)" : "";
}

std::string memory_text(const RunConfig& config, const ModelConfig& model, const Session& session,
                        const JobPlan& plan, const PlanTarget& target) {
  const Session::Memory& memory = plan.memory;
  std::string text =
      cat("Device: ", target.description, other_device_text(config), "\n\nMemory of one rank, ",
          target.sheet ? "exact to the byte or an estimate, line by line"
          : target.exact
              ? cat("to the byte what ", config.eval_only ? "evaluation" : "training", " allocates")
              : "an estimate without the workspaces of kernels",
          ":\n");
  const std::string accuracy = target.sheet ? "exact" : "";
  text += state_lines(config, model, memory, accuracy);
  text += line("counters", memory.counters, accuracy);
  text += line("arena", memory.arena,
               target.sheet ? arena_accuracy(config, model, target)
                            : "the largest of the programs below; they share it");
  if (memory.far_arena > 0) text += line("far arena", memory.far_arena, "in host memory");
  text += line("total", memory.total(),
               cat(target.sheet ? "estimate, as the arena: " : "", memory.total(), " bytes"));
  if (memory.far() > 0) {
    text += line("  of it near", plan.memory.near(), "held against --memory");
    text += line("  of it far", memory.far(),
                 memory.far_state ? "all that belongs to parameters, and the far arena" : "");
    text += line("  far, of a host", plan.far_on_host(),
                 cat(plan.ranks_on_host, plan.ranks_on_host == 1 ? " rank" : " ranks",
                     ", held against --host_memory"));
  }
  if (target.sheet) text += device_lines(plan, *target.sheet);
  if (saves_checkpoints(config) && config.async_checkpoint != "off") {
    text += line("beside it", memory.parameters + memory.optimizer,
                 cat("from which checkpoints are written beside training",
                     plan.staging > 0 ? ", held against --memory too (--async_checkpoint on)"
                     : config.async_checkpoint == "on" ? ", in host memory"
                                                       : ", where the host has it"));
  }
  const Session::Program* largest = nullptr;
  text += "\nPrograms:\n";
  for (const Session::Program& p : session.compiled()) {
    if (!p.executable->plan()) continue;  // the device lays it out by itself
    const Plan& of_program = *p.executable->plan();
    text += cat("  ", p.name, ": ", describe(p.executable->graph(), of_program), "\n");
    if (!largest || of_program.arena_bytes > largest->executable->plan()->arena_bytes) largest = &p;
  }
  if (!largest) return text;
  text += cat("\nLive at the peak of ", largest->name, ":\n");
  const Executable& peak = *largest->executable;
  for (const MemoryCategory& c : memory_at_peak(peak.graph(), *peak.plan()))
    text += line(c.name, c.bytes);
  return text;
}

std::string declined_text(const Session& session) {
  std::vector<Declined> declined = session.declined();
  if (declined.empty()) return "";
  std::string text =
      "\nWithout a kernel; the definition runs, which may take memory and time of another order:\n";
  for (const Declined& d : declined) text += cat("  ", to_string(d), "\n");
  return text;
}

std::string wire_text(const Session& session, const RunConfig& config, const JobPlan& plan) {
  auto totals = exchange_totals(session.programs(), config.gradient_accumulation_steps);
  std::string text;
  if (!totals.empty()) text += "\nOn the wire, what one rank sends in a step:\n";
  for (const ExchangeTotal& t : totals)
    text += line(cat(t.axes, " ", t.op), static_cast<int64_t>(t.bytes),
                 format("%.0f calls, %.0f ranks", t.calls, t.ranks));
  auto bytes = static_cast<int64_t>(plan.costs.link_bytes);
  if (bytes > 0)
    text += cat("\nBetween a rank and its host's memory in a step:\n",
                line("fetched and offloaded", bytes));
  return text;
}

// FLOP a token by the rule of thumb: 2 forward, 2 for gradients of weights, 2 for those of what
// goes in, which a frozen parameter passes on only to trained ones before it.
double flops_by_parameters(const Programs& programs) {
  double flops = 0;
  bool passes_on = false;
  for (const Parameter& p : programs.parameters) {
    passes_on = passes_on || p.trainable;
    flops += (p.trainable ? 6.0
              : passes_on ? 4.0
                          : 2.0) *
             static_cast<double>(num_elements(p.shape));
  }
  return flops;
}

std::string arithmetic_text(const Session& session, const JobPlan& plan) {
  const auto& parameters = session.programs().parameters;
  bool frozen = std::ranges::any_of(parameters, [](const Parameter& p) { return !p.trainable; });
  int world = plan.parallelism.mesh.world_size();
  if (session.programs().apply.nodes().empty())
    return format("\nArithmetic: %.4g FLOP a batch%s; %.4g a token%s\n", plan.costs.flops,
                  world > 1 ? " of one rank" : "", plan.costs.flops / plan.tokens_a_rank(),
                  world > 1 ? " on all ranks together" : "");
  return format("\nArithmetic: %.4g FLOP a step%s; %.4g a token%s (%s = %.4g)\n", plan.costs.flops,
                world > 1 ? " of one rank" : "", plan.costs.flops / plan.tokens_a_rank(),
                world > 1 ? " on all ranks together" : "",
                frozen ? "6 x trained, 4 x frozen behind a trained, 2 x other frozen parameters"
                       : "6 x parameters",
                flops_by_parameters(session.programs()));
}

// What computing layers again saves and costs, beside the same options without it.
std::string recomputation_text(const RunConfig& config, const ModelConfig& model,
                               const PlanTarget& target, const JobPlan& plan) {
  RunConfig keeping = config;
  keeping.activation_checkpointing = false;
  keeping.dump_pass.clear();
  JobPlan without = job_plan(keeping, *plan_session(keeping, model, target));
  std::string far = plan.memory.far() + without.memory.far() == 0
                        ? ""
                        : cat(", far ", format_bytes(plan.memory.far()), " and ",
                              format_bytes(without.memory.far()));
  const double again = plan.costs.recomputed - without.costs.recomputed;
  return format(
      "Recomputation: %.4g FLOP a step on top (%.1f %%); a rank needs %s, without it %s%s "
      "(--activation_checkpointing 0)\n",
      again, 100 * again / plan.costs.flops, format_bytes(plan.memory.near()).c_str(),
      format_bytes(without.memory.near()).c_str(), far.c_str());
}

std::string passes_text(const Session& session) {
  std::string text = "\nPasses:\n";
  for (const PassTiming& t : session.programs().timings) {
    text += format("  %-32s %8.1f ms  %zu -> %zu nodes\n", t.pass.c_str(), t.seconds * 1e3,
                   t.nodes_before, t.nodes_after);
  }
  return text;
}

// Of a family without a graph only what follows from the number of parameters is known.
PlanReport weights_report(const RunConfig& config, const ModelConfig& model) {
  JobPlan plan;
  int64_t bytes = 4 * parameter_count(model);
  plan.memory.parameters = plan.memory.gradients = bytes;
  if (const DType compute = compute_dtype(config); compute != DType::kF32)
    plan.memory.compute_weights = size_of(compute) * parameter_count(model);
  const TensorType weights{{parameter_count(model)}, DType::kF32};
  for (const Slot& slot : make_optimizer(optimizer_options(config))->slots("", weights))
    plan.memory.optimizer += slot.type.bytes();
  std::string text = heading(config, model, parameter_count(model), plan.parallelism);
  text +=
      cat("\nMemory of one rank that holds the whole model, without activations: this family is "
          "not built yet",
          config.freeze.empty() ? "" : "; all parameters are counted as trained", ".\n");
  text += state_lines(config, model, plan.memory);
  MemoryLimits limits{config.memory, {}, {}, {}};
  bool fits = plan.fits(limits);
  // What is missing may still be too much.
  if (!fits) text += verdict_text(limits, plan);
  return {text, fits};
}

}  // namespace

PlanReport plan_report(const RunConfig& config, const ModelConfig& model, const PlanTarget& target,
                       const std::filesystem::path& root, int64_t reading) {
  if (!model_family(model.model_type).build) {
    if (!config.memory_chart.empty())
      throw UsageError(cat("--memory_chart: ", name(model.model_type), " has no programs yet"));
    return weights_report(config, model);
  }
  std::unique_ptr<Session> session = plan_session(config, model, target);
  const JobPlan plan = job_plan(config, *session);
  if (!config.memory_chart.empty())
    write_file_atomic(config.memory_chart, memory_chart(*session, name(model.model_type)));
  std::string text =
      heading(config, model, trainable_count(session->programs().parameters), plan.parallelism) +
      memory_text(config, model, *session, plan, target) + declined_text(*session) +
      wire_text(*session, config, plan) + arithmetic_text(*session, plan);
  if (config.document_mask)
    text +=
        "Attention is counted over whole windows; with --document_mask it computes less, as the "
        "documents are.\n";
  if (config.activation_checkpointing && !config.eval_only)
    text += recomputation_text(config, model, target, plan);
  text += times_text(config, target, plan);
  text += roofline_text(config, session->programs(), target);
  if (target.kernels_text) text += target.kernels_text(*session);
  text += passes_text(*session);
  session.reset();
  MemoryLimits limits = memory_limits(config, target);
  bool fits = plan.fits(limits);
  text += alternatives_text(config, model, target, plan);
  text += verdict_text(limits, plan);
  if (!limits.any()) text += machine_verdict_text(config, plan, root, reading);
  return {text, fits};
}

}  // namespace tessera
