#pragma once
#include <string>

#include "ir/graph.h"

namespace tessera {

// The mesh, one line a node: `%12:bf16[8, 256] = rms_norm{epsilon=1e-05}(%3, %4)  # layers.0
// forward`, then inputs by kind, outputs and state updates. Equal graphs print equally; the hash of
// this text identifies a program.
std::string to_string(const Graph& graph);
std::string to_string(const Graph& graph, const Node& node);

// "linear in layers.3.mlp (forward)": what a node is and where, for people.
std::string place_text(const Node& node);

}  // namespace tessera
