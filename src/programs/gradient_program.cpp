#include "programs/gradient_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "autodiff/backward.h"
#include "ir/marks.h"
#include "ir/rewriter.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "programs/gradient_sums.h"
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
  GradientSums gradient_sums(g, result, rewriter);
  std::set<Value> summed;  // gradients that are put together of parts of their slot's sums
  for (const auto& [gradient, unit] : unit_of) {
    // Of several uses one may lack parts that others have.
    bool once = by_unit[static_cast<size_t>(unit - units.data())].size() == 1;
    if (!turn.first && once && gradient_sums.take(gradient, gradient_slot(*unit)))
      summed.insert(gradient);
  }
  std::map<std::string, Value> sums;
  auto collect = [&](const std::string& slot, Value value) {
    Value& sum = sums[slot];
    if (!sum && !turn.first) sum = result.input(slot, InputKind::kState, result.type(value));
    sum = sum ? add(result, sum, value) : value;
  };
  for (const Node& node : g.nodes()) {
    gradient_sums.copy(node);
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
