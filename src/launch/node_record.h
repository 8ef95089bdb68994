#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What a node says of itself when it joins.
struct NodeRecord {
  std::string host;
  int nnodes = 1, workers = 1, max_restarts = 0;
  int turn = 1;      // in the attempt this many nodes have had its place, one after another
  int serves = 0;    // 1: the store
  int is_known = 0;  // 1: it was in a round of the job that came to its first step
  int retries = 0;   // 1: its last round has failed, and there was no newcomer in it

  std::string to_text() const;
  static std::optional<NodeRecord> from_text(std::string_view text);
};

// Of all nodes, one after the other.
std::string to_text(const std::vector<NodeRecord>& nodes);
std::vector<NodeRecord> nodes_in(std::string_view text);

}  // namespace tessera
