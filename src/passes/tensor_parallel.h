#pragma once
#include <vector>

#include "ir/graph.h"
#include "nn/parameter.h"

namespace tessera {

// The mesh axes of tensor parallelism, by what is cut over them. With at most as many ranks as
// key/value heads all are cut over all ranks. With more, the group is split in two: key/value heads
// are cut over `kv_heads` only and equal on ranks that differ along the rest.
struct TensorParallelAxes {
  AxisSet all;
  AxisSet kv_heads;
};

// The part of a parameter that one rank of a tensor-parallel group has: rows [i n, (i + 1) n) along
// `dim`, i being its index along `axes`. The vocabulary is padded to a multiple of the ranks: what
// lies behind the parameter's own rows is zero and stays zero.
struct ParameterPart {
  Shape shape;
  int64_t dim = -1;  // -1: whole
  AxisSet axes;
};

// One entry a parameter, from the logical axes of its dims: vocab, heads, mlp and kv_heads are cut.
// UserError that names the parameter which cannot be cut.
std::vector<ParameterPart> parameter_parts(const std::vector<Parameter>& parameters,
                                           const Mesh& mesh, const TensorParallelAxes& axes);

// Turns the forward pass of one device into that of one rank of `mesh`: parameters become their
// parts, every op is written down by its own rule (Op::split), partial sums are reduced where they
// must be: to the residual stream, which is equal on all ranks or, with `sequence_parallel`, cut
// along the sequence (dim 1). Arguments vary over all other axes of the mesh: the data; so does
// state that the model updates, which each of these ranks makes of what it sees.
Graph tensor_parallel(const Graph& graph, const std::vector<Parameter>& parameters,
                      const std::vector<ParameterPart>& parts, const Mesh& mesh,
                      const TensorParallelAxes& axes, bool sequence_parallel);

}  // namespace tessera
