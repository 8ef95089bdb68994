#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera::xla {

// A program as StableHLO, with what its function takes and gives.
struct StableHlo {
  // A slot that is overwritten and not read is an argument too: its memory goes to the result.
  struct Argument {
    std::string name;
    bool is_state = false;
    TensorType type;
  };
  struct Result {
    std::string name;  // of the output, or of the slot that it is the new content of
    bool is_state = false;
    TensorType type;
  };
  std::string text;
  std::vector<Argument> arguments;
  std::vector<Result> results;  // outputs, then state
  int64_t ops = 0;
};

// Up to which size composites are their definition; above it they are loops over parts.
struct EmitOptions {
  // Attention of longer sequences: blocks of so many queries and keys.
  int64_t attention_tokens = 512;
  // Heads of more logits, rows x vocabulary: parts of the rows that have about so many.
  int64_t head_logits = int64_t{1} << 26;
  // Sums of squares of more elements: parts of so many.
  int64_t sum_elements = int64_t{1} << 24;
};

// The program of all ranks of the graph's mesh, a replica each, one partition: composites are their
// definition, but for those of src/backends/xla/README.md. Content of slots is donated: a slot's
// argument is aliased with its result. UserError that names op and scope for what XLA cannot do:
// values in the far tier, erf in f64.
StableHlo stablehlo(const Graph& graph, const EmitOptions& options = {});

}  // namespace tessera::xla
