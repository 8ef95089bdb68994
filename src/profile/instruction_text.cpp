#include "profile/instruction_text.h"

#include <algorithm>
#include <cmath>

#include "base/json_text.h"
#include "base/text.h"

namespace tessera {
namespace {

Cost launch_cost(const Graph& graph, const Node& node) {
  if (node.op->tier() == Tier::kInput || !node.op->view_offsets().empty()) return {};
  std::vector<TensorType> inputs, outputs;
  for (Value v : node.inputs) inputs.push_back(graph.type(v));
  for (Value v : node.outputs) outputs.push_back(graph.type(v));
  return node.op->cost(inputs, outputs);
}

DType dtype_of_work(const Graph& graph, const Node& node) {
  for (Value v : node.inputs)
    if (graph.type(v).dtype == DType::kBF16) return DType::kBF16;
  return DType::kF32;
}

// By direct exchange; an all-reduce is a reduce-scatter and an all-gather.
double bytes_sent(const Graph& graph, const Node& node, const Communication& communication) {
  auto ranks = static_cast<double>(graph.mesh().size(communication.axes));
  auto bytes = static_cast<double>(
      std::max(graph.type(node.inputs[0]).bytes(), graph.type(node.outputs[0]).bytes()));
  return bytes * (ranks - 1) / ranks * (communication.traffic == Traffic::kAllReduce ? 2 : 1);
}

// "layers.3.attn" as "layers.3", "attn".
std::vector<std::string_view> scope_parts(std::string_view scope) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (begin < scope.size()) {
    size_t end = scope.find('.', begin);
    while (end != scope.npos && end + 1 < scope.size() && scope[end + 1] >= '0' &&
           scope[end + 1] <= '9')
      end = scope.find('.', end + 1);
    parts.push_back(scope.substr(begin, end == scope.npos ? end : end - begin));
    begin = end == scope.npos ? scope.size() : end + 1;
  }
  return parts;
}

std::string types_text(const Graph& graph, const std::vector<Value>& values) {
  std::string text;
  for (Value v : values)
    text += cat(text.empty() ? "" : ",", json_quoted(to_string(graph.type(v), &graph.mesh())));
  return cat("[", text, "]");
}

// What is the same every time an instruction runs.
std::string event_text(const std::string& title, const char* category,
                       const std::string& arguments) {
  return cat(",\"name\":", json_quoted(title), ",\"cat\":\"", category, "\",\"args\":{", arguments);
}

std::string costs(const InstructionText& text) {
  return cat(
      ",\"flops\":", text.flops, ",\"bytes\":", text.bytes,
      std::isfinite(text.light_seconds) ? cat(",\"light_us\":", text.light_seconds * 1e6) : "");
}

}  // namespace

InstructionTexts::InstructionTexts(const ProfiledProgram& program, const SpeedOfLight& light,
                                   int rank)
    : program_(program),
      graph_(program.executable->graph()),
      plan_(program.executable->plan()),
      light_(light),
      rank_(rank),
      texts_(plan_ ? plan_->instructions.size() : 1) {}

const InstructionText& InstructionTexts::operator[](size_t i) {
  if (!texts_[i]) texts_[i] = plan_ ? make(plan_->instructions[i]) : whole();
  return *texts_[i];
}

void InstructionTexts::reached(size_t i, double seconds, SpeedOfLight& light) const {
  if (!plan_) return;
  const Instruction& instruction = plan_->instructions[i];
  if (instruction.kind != InstructionKind::kLaunch || instruction.lane != Lane::kCompute) return;
  const Node& node = graph_.nodes()[static_cast<size_t>(instruction.node)];
  const Cost cost = launch_cost(graph_, node);
  light.reached(node.op->contracts(), cost.flops, cost.bytes, seconds, dtype_of_work(graph_, node));
}

std::string InstructionTexts::place(const Node& node, std::string_view op) const {
  return cat("\"op\":", json_quoted(op), ",\"phase\":\"", tessera::name(node.phase),
             "\",\"scope\":", json_quoted(node.scope),
             node.layer == kNoLayer ? "" : cat(",\"layer\":", node.layer),
             ",\"program\":", json_quoted(program_.name));
}

InstructionText InstructionTexts::make(const Instruction& instruction) const {
  InstructionText text;
  const Node& node = graph_.nodes()[static_cast<size_t>(instruction.node)];
  text.node = instruction.node;
  text.lane = node.op->lane();
  text.path.emplace_back(tessera::name(node.phase));
  for (std::string_view part : scope_parts(node.scope)) text.path.emplace_back(part);
  if (instruction.kind == InstructionKind::kCopy || instruction.kind == InstructionKind::kFill) {
    const bool copies = instruction.kind == InstructionKind::kCopy;
    const char* kind = copies ? "copy" : "fill";
    text.place = place(node, kind);
    text.bytes = static_cast<double>(instruction.bytes) * (copies ? 2 : 1);
    text.light_seconds = text.bytes / light_.bandwidth;
    text.event = event_text(
        kind, "cpu_op", cat(text.place, ",\"for\":", json_quoted(node.op->name()), costs(text)));
    return text;
  }
  const std::string at = text.place = place(node, node.op->name());
  if (instruction.kind == InstructionKind::kWait) {
    describe_exchange(node, at, text);
    text.event =
        event_text(cat("wait for ", node.op->name()), "wait",
                   cat(at, text.ranks.empty() ? "" : cat(",\"ranks\":\"", text.ranks, "\"")));
    return text;
  }
  text.launches = true;
  if (instruction.lane != Lane::kCompute) {
    text.event = event_text(cat("begin ", node.op->name()), "begin", at);
    return text;
  }
  const Cost cost = launch_cost(graph_, node);
  text.flops = cost.flops;
  text.bytes = cost.bytes;
  text.light_seconds =
      light_.seconds(node.op->contracts(), cost.flops, cost.bytes, dtype_of_work(graph_, node));
  const std::string kernel = program_.executable->kernel(static_cast<size_t>(instruction.node));
  text.event = event_text(
      std::string(node.op->name()), "cpu_op",
      cat(at, ",\"kernel\":", json_quoted(kernel), ",\"inputs\":", types_text(graph_, node.inputs),
          ",\"outputs\":", types_text(graph_, node.outputs), costs(text)));
  return text;
}

InstructionText InstructionTexts::whole() const {
  InstructionText text;
  for (const Node& node : graph_.nodes()) {
    const Cost cost = launch_cost(graph_, node);
    text.flops += cost.flops;
    text.bytes += cost.bytes;
    text.light_seconds +=
        light_.seconds(node.op->contracts(), cost.flops, cost.bytes, dtype_of_work(graph_, node));
  }
  const std::string name = json_quoted(program_.name);
  text.event = event_text(cat("run of ", program_.name), "cpu_op",
                          cat("\"op\":", name, ",\"phase\":\"\",\"scope\":\"\",\"program\":", name,
                              ",\"kernel\":\"a compiled program\"", costs(text)));
  return text;
}

void InstructionTexts::describe_exchange(const Node& node, const std::string& place,
                                         InstructionText& text) const {
  const auto communication = node.op->communication();
  if (!communication) return;
  for (const std::vector<int>& group : graph_.mesh().groups(communication->axes))
    if (std::ranges::find(group, rank_) != group.end()) text.ranks = ranks_text(group);
  text.exchange =
      event_text(std::string(node.op->name()), "exchange",
                 cat(place, ",\"bytes_sent\":", bytes_sent(graph_, node, *communication),
                     ",\"axes\":", json_quoted(graph_.mesh().to_string(communication->axes)),
                     ",\"ranks\":\"", text.ranks, "\""));
}

std::string ranks_text(std::span<const int> ranks) {
  if (ranks.size() < 2) return join(ranks, ",");
  const int stride = ranks[1] - ranks[0];
  for (size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] - ranks[i - 1] != stride) return join(ranks, ",");
  return cat(ranks.front(), "-", ranks.back(), stride == 1 ? "" : cat("/", stride));
}

}  // namespace tessera
