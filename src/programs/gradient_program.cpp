#include "programs/gradient_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "autodiff/backward.h"
#include "ir/marks.h"
#include "ir/rewriter.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "programs/job_slots.h"

namespace tessera {
namespace {

// The values by which each unit is differentiated. Usually one: its shard. With unsharded
// accumulation the gathered buffers, one for each use. Of a frozen unit none.
std::vector<std::vector<Value>> differentiated(const std::vector<FlatUnit>& units,
                                               const Parallelism& parallelism) {
  std::vector<std::vector<Value>> values(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    if (!units[u].trainable) continue;
    TESSERA_CHECK(units[u].shard, cat("nobody reads unit ", units[u].name));
    bool whole = parallelism.unsharded_accumulation && !parallelism.data.shard.empty();
    values[u] = whole ? units[u].gathered : std::vector{units[u].shard};
  }
  return values;
}

// Adds gradients of units to the sums of earlier micro-batches part by part, each where it is made
// and by the op that makes it if that can (Op::adding). A plan lets the parts lie in the slot, so
// that no unit's gradient exists beside its sum, and a product reads and writes the sum while it is
// written anyway.
class SumsByPart {
 public:
  SumsByPart(const Graph& from, Graph& to, Rewriter& rewriter)
      : from_(from), to_(to), rewriter_(rewriter), readers_(from.num_values(), 0) {
    for (const Node& node : from.nodes())
      for (Value v : node.inputs) ++readers_[static_cast<size_t>(v.id)];
    for (const GraphOutput& output : from.outputs())
      ++readers_[static_cast<size_t>(output.value.id)];
    for (const StateUpdate& update : from.updates())
      ++readers_[static_cast<size_t>(update.value.id)];
  }

  // Whether the slot takes this gradient by parts: it is put together of such that nobody else
  // reads. To be asked before the nodes that make them are copied.
  bool take(Value gradient, const std::string& slot) {
    auto sums = std::make_shared<Sums>(Sums{slot, from_.type(gradient), {}, {}});
    std::vector<Value> parts;
    if (readers(gradient) > 0 || !dynamic_cast<const Flatten*>(maker(gradient).op.get()) ||
        !find_parts(gradient, 0, sums->members, parts))
      return false;
    for (size_t k = 0; k < parts.size(); ++k) parts_[parts[k]] = {sums, k};
    return true;
  }

  // Copies a node, with what it makes added to the sums.
  void copy(const Node& node) {
    std::vector<std::pair<size_t, Part>> made;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (auto part = parts_.find(node.outputs[k]); part != parts_.end())
        made.push_back({k, part->second});
    if (made.empty()) return rewriter_.copy(node);
    rewriter_.enter(node);
    OpPtr adding = made.size() == 1 ? node.op->adding(static_cast<int>(made[0].first)) : nullptr;
    if (adding) {
      std::vector<Value> operands = rewriter_(node.inputs);
      operands.push_back(so_far(made[0].second));
      std::vector<Value> outputs = to_.add(adding, operands);
      for (size_t k = 0; k < outputs.size(); ++k) rewriter_.map(node.outputs[k], outputs[k]);
      return;
    }
    rewriter_.copy(node);
    for (const auto& [k, part] : made)
      rewriter_.map(node.outputs[k], add(to_, so_far(part), rewriter_(node.outputs[k])));
  }

 private:
  // A slot seen as the parts that a gradient is put together of.
  struct Sums {
    std::string slot;
    TensorType type;
    std::vector<UnitMember> members;
    std::vector<Value> views;
  };
  struct Part {
    std::shared_ptr<Sums> sums;
    size_t member = 0;
  };

  int readers(Value v) const { return readers_[static_cast<size_t>(v.id)]; }
  const Node& maker(Value v) const { return from_.nodes()[static_cast<size_t>(from_.producer(v))]; }

  // What a value at an offset of the gradient is put together of. Of a part to which one op after
  // the other adds something (a table's gradient to that of a head), what the first of them makes.
  // False if somebody else reads one of all these values.
  bool find_parts(Value v, int64_t offset, std::vector<UnitMember>& members,
                  std::vector<Value>& parts) const {
    const Node& node = maker(v);
    std::vector<int64_t> offsets{0};
    std::span<const Value> of = node.inputs;
    const auto output = std::ranges::find(node.outputs, v) - node.outputs.begin();
    if (const auto* flatten = dynamic_cast<const Flatten*>(node.op.get())) {
      offsets = flatten->offsets();
    } else if (is_added(node, static_cast<int>(output))) {
      of = of.last(1);
    } else if (!dynamic_cast<const Reshape*>(node.op.get())) {
      members.push_back({offset, from_.shape(v)});
      parts.push_back(v);
      return true;
    }
    for (size_t k = 0; k < of.size(); ++k)
      if (readers(of[k]) != 1 || !find_parts(of[k], offset + offsets[k], members, parts))
        return false;
    return true;
  }

  Value so_far(const Part& part) {
    Sums& sums = *part.sums;
    if (sums.views.empty())
      sums.views = to_.add(std::make_shared<Unflatten>(sums.members),
                           {to_.input(sums.slot, InputKind::kState, sums.type)});
    return sums.views[part.member];
  }

  const Graph& from_;
  Graph& to_;
  Rewriter& rewriter_;
  std::vector<int> readers_;
  std::map<Value, Part> parts_;
};

}  // namespace

double one_token_share(const ProgramOptions& options) {
  return std::exp2(-std::floor(std::log2(static_cast<double>(options.batch * options.length))));
}

bool is_own_piece(const Graph& graph, Value gradient, const FlatUnit& unit) {
  return graph.shape(gradient)[0] == unit.shard_size;
}

AxisSet axes_of_copies(const Graph& graph, Value gradient, const FlatUnit& unit,
                       const ShardAxes& axes) {
  return graph.type(gradient).varying - weight_type(unit, axes).varying;
}

Value sum_over_copies(Graph& graph, Value gradient, const FlatUnit& unit, const ShardAxes& axes) {
  AxisSet over = axes_of_copies(graph, gradient, unit, axes);
  if (over.empty()) return gradient;
  return graph.add_one(std::make_shared<AllReduceOp>(over, Reduction::kSum), {gradient});
}

bool reduces_gradients(const Graph& accumulate, const std::vector<FlatUnit>& units,
                       const ShardAxes& axes) {
  return std::ranges::any_of(accumulate.updates(), [&](const StateUpdate& update) {
    auto unit = std::ranges::find(units, update.slot, gradient_slot);
    return unit != units.end() && is_own_piece(accumulate, update.value, *unit) &&
           !axes_of_copies(accumulate, update.value, *unit, axes).empty();
  });
}

Graph differentiate(const Graph& forward, const std::vector<FlatUnit>& units,
                    const ProgramOptions& options, Turn turn) {
  Graph g = forward;
  std::map<std::string, Value> results;
  for (const GraphOutput& output : g.outputs()) results[output.name] = output.value;
  Value total = results.at(kLossSum);
  if (auto squares = results.find(kSquareSum); squares != results.end())
    total = add(g, total, mul(g, squares->second, constant_like(g, total, options.z_loss)));
  if (options.loss_scaling) {
    TensorType scalar{{}, g.type(total).dtype};
    Value scale = g.input(kLossScale, InputKind::kState, scalar);
    total = mul(g, total, mul(g, scale, constant(g, scalar, one_token_share(options))));
  }
  std::vector<std::vector<Value>> by_unit = differentiated(units, options.parallelism);
  std::vector<Value> wrt;
  for (const auto& values : by_unit) wrt.insert(wrt.end(), values.begin(), values.end());
  std::vector<Value> gradients = backward(g, sum_over_marks(g, total), wrt);
  std::map<Value, const FlatUnit*> unit_of;
  size_t next = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t k = 0; k < by_unit[u].size(); ++k, ++next) {
      TESSERA_CHECK(gradients[next], cat("the loss does not depend on unit ", units[u].name));
      unit_of[gradients[next]] = &units[u];
    }
  }
  Graph result(g.mesh());
  Rewriter rewriter(g, result);
  SumsByPart by_part(g, result, rewriter);
  std::set<Value> summed;  // gradients that are put together of parts of their slot's sums
  for (const auto& [gradient, unit] : unit_of) {
    // Of several uses one may lack parts that others have.
    bool once = by_unit[static_cast<size_t>(unit - units.data())].size() == 1;
    if (!turn.first && once && by_part.take(gradient, gradient_slot(*unit)))
      summed.insert(gradient);
  }
  std::map<std::string, Value> sums;
  auto collect = [&](const std::string& slot, Value value) {
    Value& sum = sums[slot];
    if (!sum && !turn.first) sum = result.input(slot, InputKind::kState, result.type(value));
    sum = sum ? add(result, sum, value) : value;
  };
  for (const Node& node : g.nodes()) {
    by_part.copy(node);
    for (Value v : node.outputs) {
      auto found = unit_of.find(v);
      if (found == unit_of.end()) continue;
      const FlatUnit& unit = *found->second;
      Value& sum = sums[gradient_slot(unit)];
      if (summed.contains(v))
        sum = rewriter(v);
      else
        collect(gradient_slot(unit), rewriter(v));
      if (turn.last && is_own_piece(result, sum, unit)) {
        AxisSet marks = result.type(sum).varying;
        sum = vary(result, sum_over_copies(result, sum, unit, options.parallelism.data), marks);
      }
    }
  }
  result.set_scope("");
  for (const StateUpdate& update : g.updates()) result.update(update.slot, rewriter(update.value));
  for (const auto& [name, value] : results) collect(name, rewriter(value));
  for (const auto& [slot, value] : sums) result.update(slot, value);
  return result;
}

}  // namespace tessera
