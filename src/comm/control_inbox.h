#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/health.h"

namespace tessera {

// What a rank says to the others in one call of the control plane, as it travels.
std::string control_message(std::string_view tag, std::string_view kind, std::string_view text);

// What the other ranks have said to this one and no call has taken yet. Thread-safe.
class ControlInbox {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Letter {
    std::string kind, text;
    uint64_t missing = 0;  // bytes of the text that have not come
    TimePoint heard;       // when the last bytes came
  };

  ControlInbox(int world_size, const Health& health)
      : health_(health), senders_(static_cast<size_t>(world_size)) {}

  // The next bytes from that rank, whose messages come one after the other: the beginning of a
  // message, or what follows; `missing` bytes of it are still to come. False if that is none.
  bool put(int from, std::string_view bytes, uint64_t missing);
  // The next message of that rank with the tag. None if it has not come within `time`, a rank has
  // failed or that one has left; then `heard` is the time when a part of it came, if any has.
  std::optional<Letter> take(int from, const std::string& tag, std::chrono::milliseconds time,
                             TimePoint& heard);
  // Those who wait look at the health.
  void wake();

 private:
  struct Sender {
    std::map<std::string, std::deque<Letter>, std::less<>> letters;  // by tag
    Letter* open = nullptr;                                          // of which bytes are missing
  };

  const Health& health_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Sender> senders_;  // by rank
};

}  // namespace tessera
