#include "passes/flat_units.h"

#include <algorithm>
#include <map>

#include "base/round_up.h"
#include "ir/marks.h"
#include "ir/rewriter.h"
#include "ir/slot.h"
#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "ops/wide.h"

namespace tessera {
namespace {

// Where parameters are gathered: once a layer, and once behind each, all that is no layer being
// behind the last one before it; or anywhere.
using GatherPlace = int32_t;
constexpr GatherPlace kAnywhere = -2;
GatherPlace in_layer(int32_t layer) { return 2 * layer; }
GatherPlace behind_layer(int32_t layer) { return 2 * layer + 1; }

// How a parameter is read: by ops as it is, or all of them behind one `vary`. `behind` are the
// values that it stands for. Axes of the data are not in `vary`: over those all that is made of
// state varies.
struct Reading {
  std::vector<Value> behind;
  AxisSet vary;
};

class Readings {
 public:
  Readings(const Graph& graph, const ShardAxes& axes)
      : graph_(graph),
        data_axes_(axes.shard | axes.replicate),
        readers_(static_cast<size_t>(graph.num_values())) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (Value v : graph.nodes()[i].inputs)
        readers_[static_cast<size_t>(v.id)].push_back(static_cast<int32_t>(i));
    }
    for (const GraphOutput& o : graph.outputs())
      readers_[static_cast<size_t>(o.value.id)].push_back(-1);
    for (const StateUpdate& u : graph.updates())
      readers_[static_cast<size_t>(u.value.id)].push_back(-1);
  }

  Reading of(Value parameter) const {
    Reading reading{{parameter}, {}};
    const auto& readers = readers_[static_cast<size_t>(parameter.id)];
    if (readers.size() != 1 || readers[0] < 0) return reading;
    const Node& node = graph_.nodes()[static_cast<size_t>(readers[0])];
    if (const auto* varying = dynamic_cast<const VaryOp*>(node.op.get())) {
      reading.vary = varying->axes() - data_axes_;
      reading.behind.push_back(node.outputs[0]);
    }
    return reading;
  }

 private:
  const Graph& graph_;
  AxisSet data_axes_;
  std::vector<std::vector<int32_t>> readers_;
};

class Sharder {
 public:
  Sharder(const Graph& graph, const std::vector<Parameter>& parameters,
          std::vector<FlatUnit>& units, const ShardAxes& axes, DType gradient_dtype)
      : graph_(graph),
        axes_(axes),
        gradient_dtype_(gradient_dtype),
        result_(graph.mesh()),
        rewriter_(graph, result_) {
    Readings readings(graph, axes);
    for (FlatUnit& unit : units) {
      unit.shard = {};
      unit.gathered.clear();
      UnitValues& u = units_.emplace_back();
      u.unit = &unit;
      bool first = true;
      for (int32_t p : unit.parameters) {
        Value v = graph.input_value(parameters[static_cast<size_t>(p)].name);
        Reading r = readings.of(v);
        u.readings.push_back(r);
        if (first) {
          u.dtype = graph.type(v).dtype;
          u.vary = r.vary;
        }
        first = false;
        TESSERA_CHECK(graph.type(v).dtype == u.dtype, cat("two dtypes in unit ", unit.name));
        if (!(u.vary == r.vary)) u.vary = {};
      }
      for (size_t k = 0; k < u.readings.size(); ++k) {
        Reading& r = u.readings[k];
        if (!(r.vary == u.vary)) r.behind.resize(1);
        for (Value v : r.behind) member_[v] = {units_.size() - 1, k};
      }
    }
  }

  Graph run() {
    int32_t last_layer = kNoLayer;
    for (const Node& node : graph_.nodes()) {
      // A parameter and what it stands for appear where they are first read.
      if (!node.outputs.empty() && member_.contains(node.outputs[0])) continue;
      rewriter_.enter(node);
      const bool of_layer = node.layer != kNoLayer;
      if (of_layer) last_layer = node.layer;
      for (Value v : node.inputs)
        read(v, of_layer ? in_layer(last_layer) : behind_layer(last_layer));
      if (const auto* varying = dynamic_cast<const VaryOp*>(node.op.get())) {
        // What is made of a parameter may vary already.
        Value varied = vary(result_, rewriter_(node.inputs[0]), varying->axes());
        rewriter_.map(node.outputs[0], varied);
        continue;
      }
      rewriter_.copy(node);
    }
    for (const GraphOutput& output : graph_.outputs()) read(output.value, kAnywhere);
    for (const StateUpdate& update : graph_.updates()) read(update.value, kAnywhere);
    rewriter_.finish();
    return std::move(result_);
  }

 private:
  struct UnitValues {
    FlatUnit* unit = nullptr;
    std::vector<Reading> readings;
    DType dtype = DType::kF32;  // of its parameters in the graph
    AxisSet vary;
    std::map<GatherPlace, std::vector<Value>> views;
  };
  struct Member {
    size_t unit, index;
  };

  std::vector<Value> gather(UnitValues& u) {
    Value& shard = u.unit->shard;
    if (!shard) {
      Value state =
          result_.input(weight_slot(*u.unit), InputKind::kState, weight_type(*u.unit, axes_));
      shard = vary(result_, state, axes_.replicate | u.vary);
    }
    Value flat = convert(result_, shard, u.dtype);
    if (!axes_.shard.empty()) {
      flat = all_gather(result_, flat, axes_.shard, 0, gradient_dtype_);
      u.unit->gathered.push_back(flat);
    }
    return result_.add(std::make_shared<Unflatten>(u.unit->members), {flat});
  }

  // Maps a parameter that is read at a place to the view of it there; what is never cut needs no
  // more than one.
  void read(Value v, GatherPlace at) {
    auto member = member_.find(v);
    if (member == member_.end()) return;
    UnitValues& u = units_[member->second.unit];
    if (axes_.shard.empty()) at = kAnywhere;
    if (!u.views.contains(at)) u.views[at] = gather(u);
    rewriter_.map(v, u.views[at][member->second.index]);
  }

  const Graph& graph_;
  ShardAxes axes_;
  DType gradient_dtype_;
  Graph result_;
  Rewriter rewriter_;
  std::vector<UnitValues> units_;
  std::map<Value, Member> member_;
};

}  // namespace

std::vector<FlatUnit> make_units(const Graph& graph, const std::vector<Parameter>& parameters,
                                 const std::vector<ParameterPart>& parts, const ShardAxes& axes,
                                 Masters masters) {
  Readings readings(graph, axes);
  std::vector<FlatUnit> units;
  std::map<std::tuple<std::string, uint32_t, uint32_t, DType, bool>, size_t> by_key;
  std::map<std::string, int> in_layer;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    Value value = graph.input_value(p.name);
    DType dtype = graph.type(value).dtype;
    Reading reading = readings.of(value);
    AxisSet cut = parts.empty() ? AxisSet{} : parts[i].axes;
    auto [entry, fresh] =
        by_key.try_emplace({p.unit, cut.bits, reading.vary.bits, dtype, p.trainable}, units.size());
    if (fresh) {
      int number = in_layer[p.unit]++;
      FlatUnit& unit = units.emplace_back();
      unit.name = number == 0 ? p.unit : cat(p.unit, "/", number);
      unit.varying = cut;
      const bool is_master =
          masters == Masters::kF32 || (masters == Masters::kTrained && p.trainable);
      unit.dtype = is_master ? wide(dtype) : dtype;
      unit.compute_dtype = dtype;
      unit.trainable = p.trainable;
    }
    FlatUnit& unit = units[entry->second];
    const Shape& shape = parts.empty() ? p.shape : parts[i].shape;
    unit.parameters.push_back(static_cast<int32_t>(i));
    unit.members.push_back({unit.size, shape});
    unit.size = round_up(unit.size + num_elements(shape), kUnitAlignment);
  }
  int64_t ranks = graph.mesh().size(axes.shard);
  for (FlatUnit& unit : units) {
    unit.shard_size = round_up((unit.size + ranks - 1) / ranks, kUnitGranule);
    unit.size = unit.shard_size * ranks;
  }
  return units;
}

std::string weight_slot(const FlatUnit& unit) { return slot_name(kWeightKind, unit.name); }

TensorType weight_type(const FlatUnit& unit, const ShardAxes& axes) {
  return {{unit.shard_size}, unit.dtype, unit.varying | axes.shard};
}

Graph flat_units(const Graph& graph, const std::vector<Parameter>& parameters,
                 std::vector<FlatUnit>& units, const ShardAxes& axes, DType gradient_dtype) {
  return Sharder(graph, parameters, units, axes, gradient_dtype).run();
}

}  // namespace tessera
