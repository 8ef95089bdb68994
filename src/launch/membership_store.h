#pragma once
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tessera {

// Nobody answers at the moment, which may pass.
struct MembershipUnavailableError : CommError {
  using CommError::CommError;
};

// What the nodes of an elastic job share while they form rounds: one text that changes by
// compare-and-swap only, and which nodes are there. Thread-safe. Every call ends in time: with
// MembershipUnavailableError where it is worth trying again, with CommError or UserError where not.
class MembershipStore {
 public:
  struct Text {
    std::string text;
    int64_t version = 0;  // grows with every change; 0: there is no text
  };

  virtual ~MembershipStore() = default;
  virtual Text read() = 0;
  // Makes `text` the text if the version is still that of `replaced`. False: another was first.
  virtual bool replace(const Text& replaced, std::string_view text) = 0;
  // The same for the last text of a job, which goes away by itself after some minutes.
  virtual bool replace_by_last(const Text& replaced, std::string_view text) = 0;
  // This node is there under that name, until leave() or its process ends, or for as long as it
  // calls keep_alive() in time.
  virtual void appear(const std::string& node) = 0;
  virtual void keep_alive() = 0;
  // Does not throw.
  virtual void leave() = 0;
  // Those of `nodes` that are there.
  virtual std::set<std::string> present(const std::set<std::string>& nodes) = 0;
  // Returns once the text has another version, something may have changed, or the time is over.
  virtual void wait(int64_t version, std::chrono::milliseconds longest) = 0;
};

}  // namespace tessera
