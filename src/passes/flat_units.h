#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"
#include "nn/parameter.h"
#include "ops/move/flat_unit.h"

namespace tessera {

// A sharding unit: the parameters of one layer in one contiguous f32 buffer.
struct FlatUnit {
  std::string name;                 // "layers.0"
  int64_t size = 0;                 // elements, padding included
  std::vector<int32_t> parameters;  // indices into ModelGraph::parameters, ascending by offset
  std::vector<UnitMember> members;  // where each lies
};

// Offsets inside a unit are multiples of kUnitAlignment elements, its size one of kUnitGranule:
// fixed numbers, so that a unit is the same for every world size.
constexpr int64_t kUnitAlignment = 32;
constexpr int64_t kUnitGranule = 1024;

std::vector<FlatUnit> make_units(const std::vector<Parameter>& parameters);

// State slot of a unit's master weights.
std::string weight_slot(const FlatUnit& unit);

// Turns parameters into state: each unit becomes one state input, f32 [size], of which the
// parameters are views; where all of them are only read through the same conversion, the whole unit
// is converted at once: state -> convert -> unflatten. (Sharding inserts its collectives between
// these nodes.)
Graph flat_units(const Graph& graph, const std::vector<Parameter>& parameters,
                 const std::vector<FlatUnit>& units);

}  // namespace tessera
