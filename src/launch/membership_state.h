#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp_socket.h"
#include "launch/job_end.h"

namespace tessera {

// A node that takes part, or wants to.
struct MemberNode {
  std::string id;    // random, of this start of its agent
  std::string host;  // for people
  std::optional<int> wanted_rank;
};

// The text that nodes change while they form rounds (membership.h).
struct MembershipState {
  enum class Phase { kForming, kRunning, kClosed };

  std::string job_id;
  // As all nodes must have been told.
  int min_nodes = 1, max_nodes = 1, max_restarts = 0;
  int round = 0;     // from 0 on
  int restarts = 0;  // of the rounds so far that count
  Phase phase = Phase::kForming;
  // Forming: those that have come, in that order. Running: by node rank.
  std::vector<MemberNode> members;
  std::vector<MemberNode> waiting;    // for a place in the next round
  std::vector<std::string> expected;  // forming: survivors of the last round that have not come yet
  bool quick = false;                 // forming: who is expected or waiting is all who will come
  Endpoint store;                     // running: that its node 0 serves
  JobEnd end;                         // closed

  // JSON, on one line.
  std::string to_text() const;
  // No value for text that is none of it.
  static std::optional<MembershipState> from_text(std::string_view text);
};

}  // namespace tessera
