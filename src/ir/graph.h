#pragma once
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/op.h"

namespace tessera {

// Which part of a step a node belongs to.
enum class Phase : uint8_t { kForward, kBackward, kRecompute, kOptimizer };
std::string_view name(Phase phase);

constexpr int32_t kNoLayer = -1;

struct Node {
  OpPtr op;
  std::vector<Value> inputs, outputs;
  std::string scope;         // "layers.3.attn", for people
  int32_t layer = kNoLayer;  // number of the decoder layer
  Phase phase = Phase::kForward;
};

// Whether the node adds this output to its last operand (Op::adding).
bool is_added(const Node& node, int output);

// A value from outside. A state slot keeps its content between runs and may be updated by the
// program; an argument is given anew for every run; a parameter is what a model file declares,
// before a pass turns it into a state slot.
enum class InputKind { kParameter, kState, kArgument };
std::string_view name(InputKind kind);

struct GraphInput {
  std::string name;
  InputKind kind;
  Value value;
};
// A result that the caller reads after the run.
struct GraphOutput {
  std::string name;
  Value value;
};
// New content of a state slot; the slot need not be read by the graph.
struct StateUpdate {
  std::string slot;
  Value value;
};

// A static program of one rank in topological order; append-only. Every rank of the mesh runs it.
class Graph {
 public:
  explicit Graph(Mesh mesh = {}) : mesh_(std::move(mesh)) {}

  const Mesh& mesh() const { return mesh_; }

  // Appends a node with inferred output types. Where replicated and varying inputs meet in an op
  // that does not set marks itself, `vary` is inserted on the former, once per value and axes. An
  // error is given the current scope: "... (layers.3.attn_norm)".
  std::vector<Value> add(const OpPtr& op, std::vector<Value> inputs);
  // The same for an op with one output.
  Value add_one(const OpPtr& op, std::vector<Value> inputs);

  Value input(std::string name, InputKind kind, TensorType type);
  void output(std::string name, Value value);
  void update(std::string slot, Value value);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const std::vector<StateUpdate>& updates() const { return updates_; }
  // InternalError if there is no input of that name.
  Value input_value(const std::string& name) const;
  // No value if there is none.
  Value find_input(const std::string& name) const;
  // The input that the value is; null if it is made by an op.
  const GraphInput* input_of(Value v) const;
  // Whether the program gives the slot new content; whether the value is new content of a slot.
  bool updates_slot(const std::string& slot) const { return updated_slots_.contains(slot); }
  bool is_update(Value v) const { return update_values_.contains(v); }

  int32_t num_values() const { return static_cast<int32_t>(types_.size()); }
  // References to types and shapes stay valid while nodes are added.
  const TensorType& type(Value v) const { return types_[static_cast<size_t>(v.id)]; }
  const Shape& shape(Value v) const { return type(v).shape; }
  // Index of the node that makes the value.
  int32_t producer(Value v) const { return producers_[static_cast<size_t>(v.id)]; }

  const std::string& scope() const { return scope_; }
  int32_t layer() const { return layer_; }
  Phase phase() const { return phase_; }
  void set_scope(std::string scope, int32_t layer = kNoLayer) {
    scope_ = std::move(scope);
    layer_ = layer;
  }
  void set_phase(Phase phase) { phase_ = phase; }

 private:
  Value vary(Value v, AxisSet axes);

  Mesh mesh_;
  std::vector<Node> nodes_;
  std::deque<TensorType> types_;  // append-only: its elements never move
  std::vector<int32_t> producers_;
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  std::vector<StateUpdate> updates_;
  std::map<std::string, size_t, std::less<>> inputs_by_name_;  // indices into inputs_
  std::map<Value, size_t> inputs_by_value_;
  std::set<std::string, std::less<>> updated_slots_;
  std::set<Value> update_values_;
  std::map<std::pair<Value, uint32_t>, Value> varied_;
  std::string scope_;
  int32_t layer_ = kNoLayer;
  Phase phase_ = Phase::kForward;
};

// Appends ".part" to the graph's scope for as long as it lives.
class Scope {
 public:
  Scope(Graph& graph, const std::string& part) : Scope(graph, part, graph.layer()) {}
  ~Scope() { graph_.set_scope(saved_, saved_layer_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 protected:
  Scope(Graph& graph, const std::string& part, int32_t layer)
      : graph_(graph), saved_(graph.scope()), saved_layer_(graph.layer()) {
    graph.set_scope(saved_.empty() ? part : cat(saved_, ".", part), layer);
  }

 private:
  Graph& graph_;
  std::string saved_;
  int32_t saved_layer_;
};

// "layers.N", where decoder layer N is written down: what passes treat layer by layer.
class LayerScope : public Scope {
 public:
  LayerScope(Graph& graph, int64_t number)
      : Scope(graph, cat("layers.", number), static_cast<int32_t>(number)) {}
};

// The op of graph inputs: no operands, one output of the given type.
class InputOp final : public OpOf<InputOp> {
 public:
  InputOp(std::string input_name, TensorType type)
      : input_name_(std::move(input_name)), type_(std::move(type)) {}
  std::string_view name() const override { return "input"; }
  Tier tier() const override { return Tier::kInput; }
  int arity() const override { return 0; }
  bool sets_marks() const override { return true; }
  std::vector<TensorType> infer(const InferContext&) const override { return {type_}; }
  auto fields() const { return std::make_tuple(field("name", input_name_), field("type", type_)); }

 private:
  std::string input_name_;
  TensorType type_;
};

}  // namespace tessera
