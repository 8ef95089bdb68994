#pragma once
#include <string_view>

namespace tessera {

struct CommCall;

// Hears of what this rank does together with others, when that begins and when it is over, on the
// thread that does it: of the collectives of a Communicator, one after another, and of the calls of
// a Control, of which those of several tags may go on at once.
class ExchangeListener {
 public:
  virtual ~ExchangeListener() = default;
  virtual void collective_begins(const CommCall& call) = 0;
  virtual void collective_ends(const CommCall& call, bool done) = 0;  // false: it failed
  virtual void control_begins(std::string_view tag, std::string_view kind) = 0;
  virtual void control_ends(std::string_view tag, bool done) = 0;
};

}  // namespace tessera
