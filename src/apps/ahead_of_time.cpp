#include "apps/ahead_of_time.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "backends/xla/ahead_of_time.h"
#include "backends/xla/plugin_search.h"
#include "backends/xla/stablehlo.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

const Graph& graph_of(const Programs& programs, const std::string& name) {
  if (name == "accumulate_first") return programs.accumulate_first;
  if (name == "accumulate") return programs.accumulate;
  if (name == "accumulate_last") return programs.accumulate_last;
  if (name == "accumulate_only") return programs.accumulate_only;
  if (name == "apply") return programs.apply;
  if (name == "round_weights") return programs.round_weights;
  TESSERA_CHECK(name == "evaluate", name);
  return programs.evaluate;
}

int64_t all_gathers(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op->name() == "all_gather";
  return count;
}

template <class Parts>
int64_t bytes_of(const Parts& parts) {
  int64_t bytes = 0;
  for (const auto& part : parts) bytes += part.type.bytes();
  return bytes;
}

// What XLA's scheduler is told to stay within, or it gathers layers as early as it likes: what the
// plan takes. It counts values, and their layout takes some more. Of little it makes a worse
// schedule than without a limit.
int64_t memory_for(const xla::StableHlo& program, int64_t arena) {
  constexpr int64_t kEnough = int64_t{2} << 30;
  return bytes_of(program.arguments) + std::max(arena / 10 * 8, kEnough);
}

std::string line(const char* what, int64_t xla, const std::string& plan) {
  return format("    %-13s %12s   %s\n", what, format_bytes(xla).c_str(), plan.c_str());
}

std::string report(const std::string& name, const xla::AheadOfTime& compiled,
                   const xla::StableHlo& program, const Graph& graph, int64_t arena) {
  const xla::CompiledProgram::Memory& memory = compiled.memory;
  // Of a few kilobytes the ratio would say nothing.
  constexpr int64_t kWorthComparing = 1 << 20;
  std::string ratio;
  if (arena >= kWorthComparing)
    ratio = format(": %.3f times",
                   static_cast<double>(memory.temporaries) / static_cast<double>(arena));
  std::string text =
      format("  %s: %lld ops, compiled in %.1f s (%.1f s of processors)\n", name.c_str(),
             static_cast<long long>(program.ops), compiled.seconds, compiled.processor_seconds);
  text +=
      line("arguments", memory.arguments, cat("plan ", format_bytes(bytes_of(program.arguments))));
  text += line("temporaries", memory.temporaries,
               cat("plan ", format_bytes(arena), ", the arena", ratio));
  text += line("results", memory.results,
               cat("plan ", format_bytes(bytes_of(program.results)), "; ",
                   format_bytes(memory.aliased), " lie in arguments"));
  if (memory.code > 0) text += line("code", memory.code, "");
  const bool combined = compiled.gathers.tensors > compiled.gathers.ops;
  text += format(
      "    %-13s %12lld   plan %lld%s\n", "all_gathers",
      static_cast<long long>(compiled.gathers.ops), static_cast<long long>(all_gathers(graph)),
      combined ? cat("; XLA's take ", compiled.gathers.tensors, " tensors").c_str() : "");
  return text;
}

// "step.accumulate.pjrt" of "step.pjrt".
std::filesystem::path file_of(const std::string& option, const std::string& program) {
  std::filesystem::path file(option);
  const std::string extension = file.extension().string();
  file.replace_extension("");
  return cat(file.string(), ".", program, extension);
}

xla::TargetMachines machines_of(const RunConfig& config) {
  const int64_t world = planned_world(config);
  const int64_t per_host = std::min(world, config.ranks_per_host);
  if (world % per_host != 0) {
    throw UserError(cat("--target: ", world, " ranks (--world) on hosts of ", per_host,
                        " (--ranks_per_host): XLA takes hosts of equally many"));
  }
  return {config.target, static_cast<int>(world / per_host), static_cast<int>(per_host)};
}

}  // namespace

void check_target(const RunConfig& config) {
  if (config.target == "none") {
    if (!config.save_executable.empty())
      throw UsageError("--save_executable is for --device_type xla with --target");
    return;
  }
  if (config.device_type != "xla" && config.device_type != "cuda")
    throw UsageError(cat("--target ", config.target, " is for --device_type cuda or xla"));
  if (config.device_type == "cuda" && !config.save_executable.empty())
    throw UsageError("--save_executable is for --device_type xla with --target");
  if (config.device_type == "xla" && config.target == "h200")
    throw UsageError("--target h200 is for --device_type cuda: XLA's are h100 and a100");
}

void plan_ahead_of_time(const RunConfig& config, const ModelConfig& model,
                        const PlanTarget& target) {
  const xla::TargetMachines machines = machines_of(config);
  const std::filesystem::path plugin = xla::find_plugin(config.xla_plugin, xla::PluginKind::kCuda);
  const std::unique_ptr<Session> session = plan_session(config, model, target);
  std::printf(
      "\nXLA's programs for %d x %s, %d on a host, beside the plan; of one GPU, compiled ahead of "
      "time: nothing was "
      "executed, no kernel tuned\n",
      machines.gpus(), machines.gpu.c_str(), machines.gpus_per_host);
  std::string interface;
  for (const Session::Program& program : session->compiled()) {
    std::fflush(stdout);
    const Graph& graph = graph_of(session->programs(), program.name);
    const xla::StableHlo text = xla::stablehlo(graph);
    const int64_t arena = program.executable->memory().arena;
    const xla::AheadOfTime compiled = xla::compile_ahead(
        plugin, machines, program.name, text.text,
        {.keep_executable = !config.save_executable.empty(), .memory = memory_for(text, arena)});
    const std::string said = report(program.name, compiled, text, graph, arena);
    std::fputs(said.c_str(), stdout);
    interface = compiled.interface;
    if (config.save_executable.empty()) continue;
    const std::filesystem::path file = file_of(config.save_executable, program.name);
    write_file_atomic(file, compiled.executable);
    std::printf("    saved as '%s', %s\n", file.c_str(),
                format_bytes(static_cast<int64_t>(compiled.executable.size())).c_str());
  }
  std::printf("  plug-in '%s', interface %s\n", plugin.c_str(), interface.c_str());
}

}  // namespace tessera
