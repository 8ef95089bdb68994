#pragma once
#include "models/model_config.h"
#include "options/run_config.h"
#include "passes/flat_units.h"
#include "passes/tensor_parallel.h"

namespace tessera {

// How a job is spread over its ranks: a mesh replicate x shard x tp x tp_shared (outermost first;
// axes of one rank are left out) and what its axes are for. Default: one rank.
struct Parallelism {
  Mesh mesh;
  ShardAxes data;         // the data-parallel axes
  TensorParallelAxes tp;  // the rest: key/value heads are cut along its first axis only
  bool sequence_parallel = false;
  // Parameters are gathered again for the backward pass instead of being kept (ZeRO stage 3).
  bool regather = false;
  DType reduce_dtype = DType::kF32;  // of gradients on the wire
  // Gradients of several micro-batches are added up whole and reduced once a step.
  bool unsharded_accumulation = false;

  // "replicate 2 x shard 4 x tp 2"; "one rank".
  std::string to_text() const;
  // The same without what only copies the state: what a checkpoint of pieces must be resumed with.
  std::string state_text() const;

  AxisSet data_axes() const { return data.shard | data.replicate; }
  // Data-parallel ranks, and which of them `rank` is: ranks that differ along tp see the same rows.
  int data_ranks() const { return mesh.size(data_axes()); }
  int data_rank(int rank) const { return mesh.index(rank, data_axes()); }
};

// The mesh that the options ask for, over `world` ranks of which `ranks_per_host` share a host. The
// model's key/value heads decide how a tensor-parallel group is split. UsageError that names the
// option which does not divide, with what would.
Parallelism make_parallelism(const RunConfig& config, const ModelConfig& model, int64_t world,
                             int64_t ranks_per_host);

// Of a hybrid strategy whose shard groups are smaller than a host, since its ranks do not divide
// those of the job, or are of one rank: what they became and why. "" where there is nothing to say.
std::string shard_group_warning(const RunConfig& config, int64_t world, int64_t ranks_per_host);

}  // namespace tessera
