#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/control_inbox.h"
#include "comm/file_descriptor.h"
#include "comm/health.h"
#include "comm/peer_connection.h"

namespace tessera {

// One connection to every other rank of the job, for the control plane, for small messages of the
// transports and for what no message says: the system closes the connections of a process that
// dies, and so every rank knows at once. (Process ids would not do: they mean nothing across
// containers.) A thread reads and sends what did not go at once, so that nobody waits for a rank
// that takes nothing. A rank that waits for another says a few times a second in which collective:
// if the other is in a different one, both are out of step.
class PeerMesh {
 public:
  enum class Kind : uint32_t {
    kFailure = 1,   // payload: the cause
    kLeave = 2,     // the end of the connection is no failure
    kSegment = 3,   // number; payload: bytes as text; with a descriptor
    kDrop = 4,      // number of a segment that is no more
    kEndpoint = 5,  // payload: what the transport between hosts needs
    kAsk = 6,       // number: for whom does the receiver wait?
    kAnswer = 7,    // the same number; payload: that rank, -1 for nobody, and in which call
    kCall = 8,      // Health::Meeting of the sender with the receiver, for whom it waits
    kControl = 9,   // bytes of a control message; number: how many are still to come
  };
  struct Message {
    std::string payload;
    FileDescriptor descriptor;
  };

  // `sockets` by rank, none for this rank. Failures go both ways between `health` and the peers.
  PeerMesh(int rank, std::vector<FileDescriptor> sockets, Health& health,
           std::chrono::milliseconds deadline);
  ~PeerMesh();

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(connections_.size()); }

  // A message of the control plane to all other ranks, and what they have said.
  void post(const std::string& message);
  ControlInbox& inbox() { return inbox_; }

  // CommError if the peer has gone.
  void send(int rank, Kind kind, uint64_t number, std::string_view payload, int descriptor = -1);
  // False if the peer has gone.
  bool try_send(int rank, Kind kind, uint64_t number, std::string_view payload,
                int descriptor = -1);
  // The message of this kind and number, which may come up to the deadline later. CommError when it
  // does not.
  Message receive(int rank, Kind kind, uint64_t number);
  // Numbers in messages kDrop that have not been asked for, with their ranks.
  std::vector<std::pair<int, uint64_t>> dropped();

  // Tells all that this rank goes in good order.
  void leave() noexcept;

 private:
  // For whom that rank waits. None when its process does not answer.
  std::optional<Health::Waiting> ask_waits_for(int rank);
  bool send_frames(int rank, std::span<const PeerConnection::Frame> frames, int descriptor = -1);
  void tell_all(Kind kind, std::string_view payload) noexcept;
  void loop();
  // Does what poll() has said of a connection. False when it has ended.
  bool serve(int rank, short events);
  bool all_sent() const;
  void say_call();
  // False if it is none.
  bool deliver(int rank, Kind kind, uint64_t number, std::string_view payload);
  void wake_receivers();
  void wake_loop();

  int rank_;
  std::vector<std::unique_ptr<PeerConnection>> connections_;  // by rank, none for this rank
  Health& health_;
  std::chrono::milliseconds deadline_;
  ControlInbox inbox_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::tuple<int, Kind, uint64_t>, Message> mailbox_;
  std::vector<std::pair<int, uint64_t>> dropped_;
  std::atomic<uint64_t> asked_ = 0;

  FileDescriptor wake_;  // an event: there is something to send, or the end
  std::atomic<bool> ending_ = false;
  std::atomic<bool> left_ = false;
  std::thread thread_;
};

}  // namespace tessera
