#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// How an attempt of the job ended, the same words on every node.
struct JobEnd {
  // kLost: the store of the attempt is gone. kRegroup: the nodes form anew, nothing has failed.
  enum class Kind { kDone, kInterrupted, kFailed, kLost, kRegroup };
  Kind kind = Kind::kDone;
  int status = 0;         // of the agent that saw it first
  bool may_retry = true;  // kFailed: another attempt could do better
  std::string text;       // what failed first, where and how
  int lost_node = -1;     // its rank, if a node is gone, or leaves as the cause of the failure

  // Whether lost_node leaves, and the others go on without it: with it no attempt could do better.
  bool sends_node_away() const { return lost_node >= 0 && !may_retry; }

  // One line of fields and the text; no value for text that is none of it.
  std::string to_text() const;
  static std::optional<JobEnd> from_text(std::string_view text);
};

}  // namespace tessera
