#pragma once
#include <string>
#include <vector>

#include "programs/session.h"

namespace tessera {

// A node of a program as it runs.
struct FoundNode {
  std::string program;
  int32_t number = 0;  // of the node
  std::string op, scope, phase, kernel;
  struct Output {
    std::string value, type;      // "%12", "bf16[2, 32, 64]"
    std::string place;            // "arena 4096", "far arena 0", "slot weight.embed + 0"
    int32_t first = 0, last = 0;  // nodes between which its storage is live
  };
  std::vector<Output> outputs;
  std::vector<std::string> inputs;  // "%3"
  int64_t workspace = 0;            // bytes
  double flops = 0;
};

// Nodes that `word` names: a scope or the begin of one ("layers.3", "layers.3.attn"), an op
// ("rms_norm"), or a value ("%12": who makes and who reads it). UserError, with the nearest name,
// where there is none.
std::vector<FoundNode> find_nodes(const Session& session, const std::string& word);

std::string found_nodes_text(const std::string& word, const std::vector<FoundNode>& nodes);

}  // namespace tessera
