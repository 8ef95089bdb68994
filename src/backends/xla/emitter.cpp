#include "backends/xla/emitter.h"

#include <set>
#include <string_view>
#include <utility>

#include "ir/rewriter.h"

namespace tessera::xla {
namespace {

// Those that emit_composite() knows, where their definition takes memory of another order.
bool is_written_whole(const Graph& graph, const Node& node, const EmitOptions& options) {
  const std::string_view name = node.op->name();
  auto size = [&](size_t i) { return graph.shape(node.inputs[i]); };
  if (name == "attention" || name == "attention_backward")
    return size(0)[1] > options.attention_tokens;
  if (name.starts_with("linear_cross_entropy") || name.starts_with("linear_log_sum_exp"))
    return size(0)[0] > 1 && size(0)[0] * size(1)[0] > options.head_logits;
  static const std::set<std::string_view> kAlways{"adamw", "lion", "sgd", "sum_squares",
                                                  "cache_write"};
  return kAlways.contains(name);
}

// "matmul in layers.3.mlp (backward)".
std::string place_of(const Node& node) {
  return cat(node.op->name(), node.scope.empty() ? "" : cat(" in ", node.scope),
             node.phase == Phase::kForward ? "" : cat(" (", name(node.phase), ")"));
}

// Cheaper to make again than to hold apart.
bool is_made_of_nothing(const Op& op) {
  static const std::set<std::string_view> kNames{"constant", "iota", "table"};
  return kNames.contains(op.name());
}

}  // namespace

Graph with_definitions(const Graph& graph, const EmitOptions& options) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  bool changed = false;
  for (const Node& node : graph.nodes()) {
    if (node.op->tier() != Tier::kComposite || is_written_whole(graph, node, options)) {
      rewriter.copy(node);
      continue;
    }
    rewriter.enter(node);
    const std::vector<Value> outputs = node.op->decompose(result, rewriter(node.inputs));
    for (size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
    changed = true;
  }
  rewriter.finish();
  return changed ? with_definitions(result, options) : result;
}

StableHlo stablehlo(const Graph& graph, const EmitOptions& options) {
  const Graph definitions = with_definitions(graph, options);
  return Emitter(definitions, options).emit();
}

StableHlo Emitter::emit() {
  StableHlo program;
  std::map<std::string, size_t> result_of;  // by slot
  for (size_t k = 0; k < graph_.updates().size(); ++k)
    result_of[graph_.updates()[k].slot] = graph_.outputs().size() + k;
  std::vector<std::string> arguments;
  auto add_argument = [&](const std::string& name, bool is_state, const TensorType& type) {
    Tensor t{cat("%arg", arguments.size()), type.shape, element_of(type.dtype)};
    std::string text = cat(t.name, ": ", t.type());
    if (auto result = result_of.find(name); is_state && result != result_of.end())
      text += cat(" {tf.aliasing_output = ", result->second, " : i32}");
    arguments.push_back(text);
    program.arguments.push_back({name, is_state, type});
    return t;
  };
  tensors_.resize(static_cast<size_t>(graph_.num_values()));
  for (const GraphInput& input : graph_.inputs())
    set(input.value,
        add_argument(input.name, input.kind == InputKind::kState, graph_.type(input.value)));
  for (const StateUpdate& update : graph_.updates())
    if (!graph_.find_input(update.slot)) add_argument(update.slot, true, graph_.type(update.value));
  for (const Node& node : graph_.nodes()) emit(node);

  std::vector<std::string> names, types;
  auto add_result = [&](const std::string& name, bool is_state, Value v) {
    names.push_back(tensor(v).name);
    types.push_back(tensor(v).type());
    program.results.push_back({name, is_state, graph_.type(v)});
  };
  for (const GraphOutput& output : graph_.outputs()) add_result(output.name, false, output.value);
  for (const StateUpdate& update : graph_.updates()) add_result(update.slot, true, update.value);
  const std::string all = join(types, ", ");
  program.text = cat("module @tessera attributes {mhlo.num_replicas = ", graph_.mesh().world_size(),
                     " : i32, mhlo.num_partitions = 1 : i32} {\nfunc.func public @main(",
                     join(arguments, ", "), ") -> (", all, ") {\n", text_.text(),
                     "\"func.return\"(", join(names, ", "), ") : (", all, ") -> ()\n}\n}\n");
  program.ops = text_.ops();
  return program;
}

void Emitter::emit(const Node& node) {
  const Op& op = *node.op;
  if (op.tier() == Tier::kInput) return;
  text_.set_place(place_of(node));
  const bool known = emit_elementwise(node) || emit_shaping(node) || emit_reduction(node) ||
                     emit_storage(node) || emit_collective(node) || emit_composite(node);
  if (!known) {
    throw UserError(cat("XLA does not run '", op.name(), "'",
                        node.scope.empty() ? "" : cat(" (", node.scope, ")"),
                        ": give --device_type cpu, or other options"));
  }
  if (op.name() == "reduce_scatter") reductions_.push_back(tensor(node.outputs[0]));
  if (node.phase == Phase::kBackward && op.contracts())
    last_backward_product_ = tensor(node.outputs[0]);
}

std::vector<Tensor> Emitter::inlined(const Graph& graph, std::span<const Tensor> arguments) {
  Emitter inner(graph, options_);
  std::swap(inner.text_, text_);
  inner.tensors_.resize(static_cast<size_t>(graph.num_values()));
  for (size_t i = 0; i < arguments.size(); ++i) inner.set(graph.inputs()[i].value, arguments[i]);
  for (const Node& node : graph.nodes()) inner.emit(node);
  std::swap(inner.text_, text_);
  std::vector<Tensor> results;
  for (const GraphOutput& output : graph.outputs()) results.push_back(inner.tensor(output.value));
  return results;
}

Tensor Emitter::in(const Node& node, size_t i) {
  const bool behind = node.phase == Phase::kRecompute || node.phase == Phase::kBackward;
  return behind ? behind_forward(node, node.inputs[i]) : tensor(node.inputs[i]);
}

std::vector<Tensor> Emitter::all_in(const Node& node) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < node.inputs.size(); ++i) all.push_back(in(node, i));
  return all;
}

Tensor Emitter::behind_forward(const Node& node, Value v) {
  const Node& maker = graph_.nodes()[static_cast<size_t>(graph_.producer(v))];
  const bool is_input = maker.op->tier() == Tier::kInput;
  if (maker.phase != Phase::kForward || is_made_of_nothing(*maker.op)) return tensor(v);
  if (node.phase == Phase::kBackward && is_input) return tensor(v);
  auto [known, fresh] = behind_.try_emplace(v);
  if (!fresh) return known->second;
  std::vector<Tensor> ties;
  if (node.phase == Phase::kRecompute) {
    if (last_backward_product_) ties.push_back(*last_backward_product_);
    if (reductions_.size() >= 2) ties.push_back(reductions_[reductions_.size() - 2]);
  }
  return known->second = text_.barrier(tensor(v), ties);
}

}  // namespace tessera::xla
