#pragma once
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace tessera {

// The graph as a page that loads nothing: its nodes by phase and layer, which fold; a search over
// ops, scopes, types and values; of every value who makes and who reads it. With the graph of
// `before`, what was added, removed or changed since is marked (passes/graph_diff.h).
std::string graph_page(std::string_view title, const Graph& graph, const Graph* before = nullptr);

// Of graph_page(): what stands in front of the data, and what draws it (graph_page_script.cpp).
extern const char* const kGraphPageBody;
extern const char* const kGraphPageScript;

}  // namespace tessera
