#include "explain/explanation.h"

#include <algorithm>
#include <cstdlib>

#include "explain/node_search.h"
#include "explain/peak.h"
#include "ir/printer.h"
#include "programs/program_options.h"

namespace tessera {
namespace {

constexpr size_t kRows = 12;  // of what may be long
constexpr int kColumns = 100;

std::string row(const std::string& label, int64_t bytes, const std::string& note) {
  return format("  %-28s %12s  %s\n", label.c_str(), format_bytes(bytes).c_str(), note.c_str());
}

std::string signed_bytes(int64_t bytes) {
  return (bytes < 0 ? "-" : "+") + format_bytes(std::abs(bytes));
}

std::string state_text(const Session& session) {
  std::string text = "\nState, there all the time:\n";
  for (const StateMemory& state : state_memory(session))
    text += row(state.kind, state.bytes, state.formula());
  return text;
}

std::string sums_text(const std::string& title, std::vector<HeldSum> sums) {
  if (sums.size() > kRows + 1) {
    HeldSum others{cat(sums.size() - kRows, " others"), 0, 0};
    for (size_t i = kRows; i < sums.size(); ++i) {
      others.bytes += sums[i].bytes;
      others.storages += sums[i].storages;
    }
    sums.resize(kRows);
    sums.push_back(std::move(others));
  }
  size_t width = 28;
  for (const HeldSum& sum : sums) width = std::max(width, sum.name.size());
  std::string text = cat("\n", title, ":\n");
  for (const HeldSum& sum : sums)
    text += format("  %-*s %12s  %lld %s\n", static_cast<int>(width), sum.name.c_str(),
                   format_bytes(sum.bytes).c_str(), static_cast<long long>(sum.storages),
                   sum.storages == 1 ? "buffer" : "buffers");
  return text;
}

std::string held_text(const Graph& graph, const std::vector<HeldStorage>& held) {
  std::string text = "\nThe largest of it, and why it is there:\n";
  int64_t rest = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    const HeldStorage& one = held[i];
    if (i >= kRows) {
      rest += one.bytes;
      continue;
    }
    const std::string by =
        one.maker < 0 ? "" : place_text(graph.nodes()[static_cast<size_t>(one.maker)]);
    text += format("  %12s  %s%s: %s\n", format_bytes(one.bytes).c_str(),
                   one.value ? cat("%", one.value.id, ":", one.type, " of ").c_str() : "",
                   by.c_str(), one.reason.c_str());
  }
  if (held.size() > kRows)
    text += format("  %12s  %zu others\n", format_bytes(rest).c_str(), held.size() - kRows);
  return text;
}

std::string savings_text(const std::vector<Saving>& savings) {
  if (savings.empty()) return "";
  std::string text =
      "\nOther options (each was planned; beside this plan, FLOP for a step of as many tokens):\n";
  bool marked = false;
  for (const Saving& saving : savings) {
    text += format("  %12s  %s%s  %+.1f %% FLOP%s\n", signed_bytes(saving.near).c_str(),
                   saving.options.c_str(), saving.other_results ? " *" : "", 100 * saving.flops,
                   saving.far == 0 ? "" : cat(", ", signed_bytes(saving.far), " far").c_str());
    marked = marked || saving.other_results;
  }
  if (marked) text += "  * trains another way: losses and weights differ\n";
  return text;
}

}  // namespace

Explanation::Explanation(const ExplainedJob& job) : job_(job) {
  session_ = plan_session(job.config, job.model, job.target, [this](const PassEvent& event) {
    passes_.push_back(pass_changes(event));
  });
  plan_ = job_plan(job.config, *session_);
  residency_ = planned_options(job.config, job.model).residency;
}

const Session::Program& Explanation::largest() const {
  const Session::Program* largest = largest_program(*session_);
  if (!largest)
    throw UserError(cat("--device_type ", job_.config.device_type,
                        " lays programs out by itself: there is no plan to explain"));
  return *largest;
}

std::vector<HeldStorage> Explanation::held() const {
  const Executable& executable = *largest().executable;
  return held_at_peak(executable.graph(), *executable.plan(), residency_);
}

std::string Explanation::text(const std::string& topic) {
  if (topic == "memory") return memory_text();
  if (topic == "peak") return peak_text(largest(), kColumns);
  if (topic == "kernels") return kernels_text();
  if (topic == "passes") return passes_text();
  return found_nodes_text(topic, find_nodes(*session_, topic));
}

std::string Explanation::memory_text() {
  const Session::Memory& memory = plan_.memory;
  const Session::Program& program = largest();
  const Graph& graph = program.executable->graph();
  const Plan& plan = *program.executable->plan();
  const std::vector<HeldStorage> held = this->held();
  const char* known = !job_.target.exact              ? ", an estimate without workspaces"
                      : job_.target.without_libraries ? ", with the most that libraries may take"
                                                      : "";
  std::string text =
      cat("A rank takes ", format_bytes(memory.total()), " (", memory.total(), " bytes", known,
          "): state ", format_bytes(memory.total() - memory.arena - memory.far_arena), ", arena ",
          format_bytes(memory.arena),
          memory.far_arena > 0 ? cat(", far arena ", format_bytes(memory.far_arena)) : "",
          memory.far() > 0 ? cat("; far of it ", format_bytes(memory.far())) : "", "\n");
  text += state_text(*session_);
  text += cat("\nArena, shared by the programs; ", program.name, " needs the most:\n");
  text += row("live at its peak", plan.live_peak_bytes,
              cat("node ", plan.peak_node, " of ", graph.nodes().size(), ", ",
                  plan.peak_node < 0 || plan.peak_node >= std::ssize(graph.nodes())
                      ? "the end"
                      : place_text(graph.nodes()[static_cast<size_t>(plan.peak_node)])));
  if (plan.arena_bytes > plan.live_peak_bytes)
    text += row("lost between buffers", plan.arena_bytes - plan.live_peak_bytes,
                "what lives together does not fit closer");
  text += sums_text("Live at the peak, by kind", held_by_category(held));
  text += sums_text("By op", held_by_op(graph, held));
  text += sums_text("By place", held_by_place(graph, held));
  text += held_text(graph, held);
  text += savings_text(savings(job_.config, job_.model, job_.target, plan_));
  return text;
}

std::vector<Explanation::OtherKernels> Explanation::other_kernels() const {
  std::vector<OtherKernels> all;
  for (const OtherDevice& device : job_.others) {
    RunConfig config = job_.config;
    config.dump_pass.clear();
    std::unique_ptr<Session> session = plan_session(config, job_.model, *device.target);
    all.push_back({device.name, device.here,
                   kernel_uses(*session, config.gradient_accumulation_steps),
                   session->planned_memory().arena});
  }
  return all;
}

std::string Explanation::kernels_text() {
  const KernelUses uses = kernel_uses(*session_, job_.config.gradient_accumulation_steps);
  std::string text = cat("Device: ", job_.target.description, "\n\n",
                         format("%-30s %-36s %6s %9s %7s %12s\n", "op", "kernel", "nodes",
                                "launches", "FLOP", "scratch"));
  std::vector<std::string> storage_only;
  for (const KernelUse& use : uses.kernels) {
    if (use.kernel.empty() && job_.target.exact) {
      storage_only.push_back(cat(use.nodes, " ", use.op));
      continue;
    }
    text += format("%-30s %-36s %6lld %9.0f %6.2f%% %12s\n", use.op.c_str(), use.kernel.c_str(),
                   static_cast<long long>(use.nodes), use.launches,
                   uses.flops > 0 ? 100 * use.flops / uses.flops : 0,
                   use.workspace > 0 ? format_bytes(use.workspace).c_str() : "");
    if (!use.passed_over.empty())
      text += cat("    the kernels before it declined: ", use.passed_over, "\n");
  }
  text +=
      "Nodes are those of all programs, launches and FLOP those of a step, scratch that of the "
      "node that takes most.\n";
  if (!storage_only.empty())
    text +=
        cat("Nothing runs for views and what is made in place: ", join(storage_only, ", "), "\n");
  if (!job_.target.exact) {
    text +=
        "Its compiler makes code of its own of them: kernels, launches and scratch are not known "
        "here.\n";
  } else if (uses.decomposed.empty()) {
    text += "Every composite has a kernel: none was decomposed.\n";
  } else {
    text +=
        "\nNo kernel took these composites; their definition runs, which may take memory and "
        "time of another order:\n";
    for (const Declined& declined : uses.decomposed) text += cat("  ", to_string(declined), "\n");
  }
  if (job_.target.kernels_text) text += job_.target.kernels_text(*session_);
  const std::vector<OtherKernels> others = other_kernels();
  if (others.empty()) return text;
  text += cat("\nWith --cpu_isa:\n");
  for (const OtherKernels& other : others) {
    int64_t decomposed = 0;
    std::vector<std::string> names;
    for (const Declined& declined : other.uses.decomposed) {
      decomposed += declined.nodes;
      names.push_back(declined.op);
    }
    text +=
        format("  %-12s arena %12s, %s%s\n", other.name.c_str(), format_bytes(other.arena).c_str(),
               decomposed == 0 ? "nothing decomposed"
                               : cat(decomposed, " decomposed: ", join(names, ", ")).c_str(),
               other.here ? "" : "; this processor cannot run it");
  }
  return text;
}

std::string Explanation::passes_text() const {
  return cat(pass_changes_text(passes_, 6),
             "\n+ added, - removed, ~ changed in type, attributes or operands. The graphs: "
             "--dump_pass DIR, as pages with --dump_format html.\n");
}

}  // namespace tessera
