#include "flight/program_texts.h"

#include <algorithm>

#include "base/text.h"
#include "profile/instruction_text.h"

namespace tessera {
namespace {

const char* kind_of(const Instruction& instruction) {
  switch (instruction.kind) {
    case InstructionKind::kWait: return "wait";
    case InstructionKind::kCopy: return "copy";
    case InstructionKind::kFill: return "fill";
    case InstructionKind::kLaunch: break;
  }
  return instruction.lane == Lane::kCompute ? "run" : "begin";
}

int64_t bytes_of(const Graph& graph, const Node& node, const Instruction& instruction) {
  if (instruction.bytes > 0) return instruction.bytes;
  int64_t bytes = 0;
  for (Value v : node.inputs) bytes = std::max(bytes, graph.type(v).bytes());
  for (Value v : node.outputs) bytes = std::max(bytes, graph.type(v).bytes());
  return bytes;
}

}  // namespace

std::string text_line(std::initializer_list<std::string> fields) {
  std::string line;
  for (std::string field : fields) {
    std::ranges::replace_if(
        field, [](unsigned char c) { return c < ' '; }, ' ');
    line += line.empty() ? field : cat("\t", field);
  }
  return line + '\n';
}

std::string program_lines(std::string_view name, const Executable& program, int rank) {
  const Graph& graph = program.graph();
  const std::vector<Instruction>& instructions = program.plan()->instructions;
  std::string lines = text_line({"program", std::string(name), cat(instructions.size())});
  for (const Instruction& instruction : instructions) {
    const Node& node = graph.nodes()[static_cast<size_t>(instruction.node)];
    std::string group, ranks;
    if (const auto communication = node.op->communication()) {
      group = graph.mesh().to_string(communication->axes);
      for (const std::vector<int>& all : graph.mesh().groups(communication->axes))
        if (std::ranges::find(all, rank) != all.end()) ranks = ranks_text(all);
    }
    lines += text_line({kind_of(instruction), std::string(node.op->name()), node.scope,
                        node.layer == kNoLayer ? "-" : cat(node.layer),
                        std::string(tessera::name(node.phase)),
                        std::string(tessera::name(node.op->lane())),
                        cat(bytes_of(graph, node, instruction)), group, ranks});
  }
  return lines;
}

}  // namespace tessera
