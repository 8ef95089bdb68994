#include <algorithm>

#include "train/training_run.h"

namespace tessera {

ProgramOptions program_options(const RunConfig& config) {
  ProgramOptions options;
  options.batch = config.train_batch_size;
  options.length = config.max_context_width;
  options.validation_batch = config.val_batch_size;
  options.compute = config.bf16 ? DType::kBF16 : DType::kF32;
  options.accumulates = config.gradient_accumulation_steps > 1;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.passes.disabled = config.disable_pass;
  options.passes.dump_directory = config.dump_pass;
  return options;
}

ModelBuilder model_builder(const ModelConfig& model) {
  return [model](int64_t batch, int64_t length, ModelHead head) { return llama(model, batch, length, head); };
}

double program_flops(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorType> inputs, outputs;
    for (Value v : node.inputs) inputs.push_back(graph.type(v));
    for (Value v : node.outputs) outputs.push_back(graph.type(v));
    if (node.op->tier() != Tier::kInput && node.op->view_offsets().empty()) flops += node.op->cost(inputs, outputs).flops;
  }
  return flops;
}

PlanReport plan_report(const RunConfig& config, const ModelConfig& model, const CompileFunction& compile) {
  Session session(build_programs(model_builder(model), program_options(config)), compile);
  Session::Memory memory = session.planned_memory();
  std::string text;
  auto line = [&](const std::string& label, int64_t bytes, const std::string& note) {
    text += format("  %-28s %12s  %s\n", label.c_str(), format_bytes(bytes).c_str(), note.c_str());
  };
  int64_t parameters = parameter_count(model);
  text += cat("Model ", name(model.model_type), ": ", parameters, " parameters (", format_count(static_cast<double>(parameters)), "), ", model.num_layers, " layers, width ", model.hidden_width,
              ", ", model.num_heads, " heads, ", model.num_key_value_heads, " key/value heads, vocabulary ", model.vocab_size, "\n");
  text += cat("Step: ", config.gradient_accumulation_steps, " x ", config.train_batch_size, " sequences of ", config.max_context_width, " tokens, ", config.bf16 ? "bf16 over f32 masters" : "f32", "\n\n");
  text += "Memory of one rank, to the byte what training allocates:\n";
  line("parameters (f32)", memory.parameters, "");
  line("moments (f32)", memory.optimizer, "");
  line("gradients (f32)", memory.gradients, "");
  line("counters", memory.counters, "");
  line("arena", memory.arena, "the largest of the programs below; they share it");
  line("total", memory.total(), cat(memory.total(), " bytes"));
  const Session::Program* largest = nullptr;
  text += "\nPrograms:\n";
  for (const Session::Program& p : session.compiled()) {
    text += cat("  ", p.name, ": ", describe(p.executable->graph(), p.executable->plan()), "\n");
    if (!largest || p.executable->plan().arena_bytes > largest->executable->plan().arena_bytes) largest = &p;
  }
  text += cat("\nLive at the peak of ", largest->name, ":\n");
  for (const MemoryCategory& c : memory_at_peak(largest->executable->graph(), largest->executable->plan())) line(c.name, c.bytes, "");
  double flops = program_flops(session.programs().accumulate_first) * static_cast<double>(config.gradient_accumulation_steps) + program_flops(session.programs().apply);
  double tokens = static_cast<double>(config.gradient_accumulation_steps * config.train_batch_size * config.max_context_width);
  text += format("\nArithmetic: %.4g FLOP a step, %.4g a token (6 x parameters = %.4g)\n", flops, flops / tokens, 6.0 * static_cast<double>(parameters));
  if (config.memory) {
    int64_t over = memory.total() - *config.memory;
    text += over > 0 ? cat("\nDoes not fit: ", format_bytes(over), " more than --memory ", format_bytes(*config.memory), "\n")
                     : cat("\nFits in --memory ", format_bytes(*config.memory), ": ", format_bytes(-over), " are left\n");
  }
  text += "\nPasses:\n";
  for (const PassTiming& t : session.programs().timings) {
    text += format("  %-32s %8.1f ms  %zu -> %zu nodes\n", t.pass.c_str(), t.seconds * 1e3, t.nodes_before, t.nodes_after);
  }
  return {text, !config.memory || memory.total() <= *config.memory};
}

}  // namespace tessera
