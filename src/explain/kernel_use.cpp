#include "explain/kernel_use.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "programs/step_costs.h"

namespace tessera {

int64_t runs_in_step(const Programs& programs, std::string_view program, int64_t micro_batches) {
  if (programs.apply.nodes().empty()) return program == "evaluate";
  if (program == "apply") return 1;
  // The first, the last and one of those between them stand for all.
  int64_t runs = 0;
  auto count = [&](bool first, bool last, int64_t times) {
    if (programs.micro_batch(first, last).name == program) runs += times;
  };
  if (micro_batches == 1) {
    count(true, true, 1);
    return runs;
  }
  count(true, false, 1);
  count(false, false, micro_batches - 2);
  count(false, true, 1);
  return runs;
}

KernelUses kernel_uses(const Session& session, int64_t micro_batches) {
  std::map<std::tuple<std::string, std::string, std::string>, KernelUse> uses;
  KernelUses all;
  for (const Session::Program& program : session.compiled()) {
    const Executable& executable = *program.executable;
    const Graph& graph = executable.graph();
    const Plan* plan = executable.plan();
    const auto runs =
        static_cast<double>(runs_in_step(session.programs(), program.name, micro_batches));
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& node = graph.nodes()[i];
      if (node.op->tier() == Tier::kInput) continue;
      const std::string op(node.op->name()), kernel = executable.kernel(i),
                                             passed_over = executable.passed_over(i);
      KernelUse& use = uses[{op, kernel, passed_over}];
      use.op = op;
      use.kernel = kernel;
      use.passed_over = passed_over;
      ++use.nodes;
      const double flops = runs * node_cost(graph, node).flops;
      if (!kernel.empty()) use.launches += runs;
      use.flops += flops;
      all.flops += flops;
      if (plan && plan->workspaces[i] >= 0)
        use.workspace =
            std::max(use.workspace, plan->storages[static_cast<size_t>(plan->workspaces[i])].bytes);
    }
  }
  for (auto& [key, use] : uses) all.kernels.push_back(std::move(use));
  std::ranges::stable_sort(all.kernels, [](const KernelUse& a, const KernelUse& b) {
    return std::tuple(a.kernel.empty(), -a.flops, -a.launches) <
           std::tuple(b.kernel.empty(), -b.flops, -b.launches);
  });
  all.decomposed = session.declined();
  return all;
}

}  // namespace tessera
