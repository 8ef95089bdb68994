#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/file_descriptor.h"
#include "comm/health.h"

namespace tessera {

// One connection to every other rank of the job, for small messages and for what no message says:
// the system closes the connections of a process that dies, and so every rank knows at once.
// (Process ids would not do: they mean nothing across containers.) A thread reads, and a rank that
// waits for another says a few times a second in which call: if the other is in a different one,
// both are out of step.
class PeerMesh {
 public:
  enum class Kind : uint32_t {
    kFailure = 1,   // payload: the cause
    kLeave = 2,     // the end of the connection is no failure
    kSegment = 3,   // number; payload: bytes as text; with a descriptor
    kDrop = 4,      // number of a segment that is no more
    kEndpoint = 5,  // payload: what the transport between hosts needs
    kAsk = 6,       // number: for whom does the receiver wait?
    kAnswer = 7,    // the same number; payload: that rank, -1 for nobody
    kCall = 8,      // Health::Meeting of the sender with the receiver, for whom it waits
  };
  struct Message {
    uint64_t number = 0;
    std::string payload;
    FileDescriptor descriptor;
  };

  // `sockets` by rank, none for this rank. Failures go both ways between `health` and the peers.
  PeerMesh(int rank, std::vector<FileDescriptor> sockets, Health& health,
           std::chrono::milliseconds deadline);
  ~PeerMesh();

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(sockets_.size()); }

  // CommError if the peer has gone.
  void send(int rank, Kind kind, uint64_t number, std::string_view payload, int descriptor = -1);
  // False if the peer has gone or takes no messages.
  bool try_send(int rank, Kind kind, uint64_t number, std::string_view payload,
                int descriptor = -1);
  // The message of this kind and number, which may come up to the deadline later. CommError when it
  // does not.
  Message receive(int rank, Kind kind, uint64_t number);
  // Numbers in messages kDrop that have not been asked for, with their ranks.
  std::vector<std::pair<int, uint64_t>> dropped();

  // Tells all that this rank goes in good order.
  void leave() noexcept;
  // Ends the reader: after it nothing is called back.
  void stop();

 private:
  // For whom that rank waits. None when its process does not answer.
  std::optional<int> ask_waits_for(int rank);
  struct Incoming {
    std::string bytes;
    std::deque<FileDescriptor> descriptors;
  };
  void tell_all(Kind kind, std::string_view payload) noexcept;
  void read_loop();
  void say_call();
  // False when the connection has ended.
  bool read_some(int rank);
  void deliver(int rank, Kind kind, Message message);
  void wake_receivers();

  int rank_;
  std::vector<FileDescriptor> sockets_;
  Health& health_;
  std::chrono::milliseconds deadline_;
  FileDescriptor stop_;  // an event: the reader ends

  std::mutex sending_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::tuple<int, Kind, uint64_t>, Message> mailbox_;
  std::vector<std::pair<int, uint64_t>> dropped_;
  std::atomic<uint64_t> asked_ = 0;

  std::vector<Incoming> incoming_;  // the reader's own
  std::thread reader_;
};

}  // namespace tessera
