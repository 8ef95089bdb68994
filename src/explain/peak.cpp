#include "explain/peak.h"

#include <algorithm>

#include "ir/printer.h"
#include "plot/terminal_chart.h"

namespace tessera {
namespace {

constexpr int kChartRows = 12, kAround = 4;

std::string instruction_text(const Node& node, const Instruction& instruction) {
  const std::string place = place_text(node);
  switch (instruction.kind) {
    case InstructionKind::kLaunch:
      return instruction.lane == Lane::kCompute ? place : cat("begin ", place);
    case InstructionKind::kWait: return cat("wait for ", place);
    case InstructionKind::kCopy:
      return cat("copy of ", format_bytes(instruction.bytes), " for ", place);
    case InstructionKind::kFill:
      return cat("fill of ", format_bytes(instruction.bytes), " for ", place);
  }
  return place;
}

// The unit in which the axis shows bytes.
std::pair<double, const char*> unit_of(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = 1;
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && static_cast<double>(bytes) >= 1024 * size; ++unit)
    size *= 1024;
  return {size, kUnits[unit]};
}

}  // namespace

std::vector<InstructionMemory> around_peak(const Graph& graph, const Plan& plan, int around) {
  const std::vector<int64_t> live = live_bytes(plan, static_cast<int32_t>(graph.nodes().size()));
  const std::vector<Instruction>& all = plan.instructions;
  // The peak may be at a node that is storage only: then what runs next stands for it.
  auto first =
      std::ranges::find_if(all, [&](const Instruction& i) { return i.node >= plan.peak_node; });
  auto last = first;
  while (last != all.end() && last->node == first->node) ++last;
  const auto begin = std::max<std::ptrdiff_t>(0, first - all.begin() - around);
  const auto end = std::min<std::ptrdiff_t>(std::ssize(all), last - all.begin() + around);
  std::vector<InstructionMemory> found;
  for (std::ptrdiff_t k = begin; k < end; ++k) {
    const Instruction& instruction = all[static_cast<size_t>(k)];
    const Node& node = graph.nodes()[static_cast<size_t>(instruction.node)];
    InstructionMemory memory{.number = k, .node = instruction.node};
    memory.text = instruction_text(node, instruction);
    if (instruction.kind == InstructionKind::kLaunch) {
      std::vector<std::string> types;
      for (Value v : node.outputs) types.push_back(to_string(graph.type(v), &graph.mesh()));
      memory.made = join(types, ", ");
    }
    memory.live = live[static_cast<size_t>(instruction.node)];
    memory.peak = all.begin() + k >= first && all.begin() + k < last;
    found.push_back(std::move(memory));
  }
  return found;
}

std::string peak_text(const Session::Program& program, int columns) {
  const Graph& graph = program.executable->graph();
  const Plan& plan = *program.executable->plan();
  const auto nodes = static_cast<int32_t>(graph.nodes().size());
  const auto [size, unit] = unit_of(plan.live_peak_bytes);
  Series series{cat("live, ", unit), {}, {}};
  const std::vector<int64_t> live = live_bytes(plan, nodes);
  for (int32_t i = 0; i < nodes; ++i) {
    series.steps.push_back(i);
    series.values.push_back(static_cast<double>(live[static_cast<size_t>(i)]) / size);
  }
  const std::string at = plan.peak_node < 0 ? "an empty program"
                         : plan.peak_node >= nodes
                             ? "its end"
                             : place_text(graph.nodes()[static_cast<size_t>(plan.peak_node)]);
  std::string text = cat("Peak of ", program.name, ": ", format_bytes(plan.live_peak_bytes), " (",
                         plan.live_peak_bytes, " bytes) live at node ", plan.peak_node, " of ",
                         nodes, ", ", at, "\n\n");
  Panel panel{cat(unit, " live at each node of ", program.name), {}};
  panel.series.push_back(std::move(series));
  text += terminal_chart(panel, columns, kChartRows, false);
  text += "\nWhat runs around it:\n";
  for (const InstructionMemory& memory : around_peak(graph, plan, kAround)) {
    text +=
        format("%s %5lld %12s  %s%s\n", memory.peak ? ">" : " ",
               static_cast<long long>(memory.number), format_bytes(memory.live).c_str(),
               memory.text.c_str(), memory.made.empty() ? "" : cat(" -> ", memory.made).c_str());
  }
  return text;
}

}  // namespace tessera
