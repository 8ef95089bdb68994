#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"
#include "nn/parameter.h"
#include "ops/move/flat_unit.h"
#include "passes/tensor_parallel.h"

namespace tessera {

// A sharding unit: parameters of one layer in one contiguous buffer, of which every rank along
// the shard axes keeps an equal piece. Parameters of a layer share a unit when they agree in what
// the collectives need (the axes over which they are cut, those over which their gradients differ
// in addition, the dtype on the wire) and in whether they are trained.
struct FlatUnit {
  std::string name;                   // "layers.0"; a second of the same layer "layers.0/1"
  int64_t size = 0;                   // elements of the whole buffer, padding included
  int64_t shard_size = 0;             // elements that one rank keeps
  AxisSet varying;                    // tensor-parallel axes over which the content differs
  DType dtype = DType::kF32;          // of the masters
  DType compute_dtype = DType::kF32;  // of the parameters as they are used
  std::vector<int32_t> parameters;    // indices into ModelGraph::parameters, ascending by offset
  std::vector<UnitMember> members;    // where each part lies
  bool trainable = true;              // false: state that no program updates, without gradient

  // In the graph that flat_units() made last. The shard, made to vary over all axes over which its
  // gradient does, so that accumulators can be summed over those once a step; and where it is cut
  // the whole buffer, one for each use.
  Value shard;
  std::vector<Value> gathered;
};

// Where units are cut, and over which axes they are copies that see different data.
struct ShardAxes {
  AxisSet shard;
  AxisSet replicate;
};

// Offsets inside a unit are multiples of kUnitAlignment elements and a rank's piece one of
// kUnitGranule: fixed numbers, so that a parameter lies at the same offset for every world size.
constexpr int64_t kUnitAlignment = 32;
constexpr int64_t kUnitGranule = 1024;

// What is kept of parameters that are declared in bf16 or f16 (by precision(), for one).
enum class Masters {
  kF32,      // f32, of which the parameters are rounded copies; f64 of f64
  kTrained,  // f32 of what is trained, of frozen parameters as kNone
  kNone,  // the parameters themselves: the same bits, for programs whose weights are rounded when
          // they are loaded, and half the bytes
};

// `graph` declares the parameters, in the dtype in which they are used and travel; `parts` as they
// are cut in it (empty: not at all).
std::vector<FlatUnit> make_units(const Graph& graph, const std::vector<Parameter>& parameters,
                                 const std::vector<ParameterPart>& parts = {},
                                 const ShardAxes& axes = {}, Masters masters = Masters::kF32);

// State slot of a unit's master weights.
std::string weight_slot(const FlatUnit& unit);
TensorType weight_type(const FlatUnit& unit, const ShardAxes& axes);

// Turns parameters into state. Each unit becomes one state input, [shard_size], and
//   state -> vary -> convert -> all_gather -> unflatten
// gives the parameters as views of the gathered buffer: what travels has the dtype in which `graph`
// declares them. The gradient of the chain is flatten -> reduce_scatter, in `gradient_dtype` on the
// wire; of a frozen unit nobody asks for it. A unit that is read in several layers (a tied matrix)
// is gathered for each. Each unit is told its shard and its gathered buffers.
Graph flat_units(const Graph& graph, const std::vector<Parameter>& parameters,
                 std::vector<FlatUnit>& units, const ShardAxes& axes = {},
                 DType gradient_dtype = DType::kF32);

}  // namespace tessera
