#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "comm/file_descriptor.h"

namespace tessera {

// A connection to one rank, for frames: a kind, a number and some bytes. Who sends never waits:
// what the system does not take stays here until flush().
class PeerConnection {
 public:
  static constexpr size_t kMaxPayload = 64 << 10;
  // As it travels; one may be sent to several ranks.
  using Frame = std::shared_ptr<const std::string>;
  static Frame make_frame(uint32_t kind, uint64_t number, std::string_view payload);

  // A socket that does not block.
  explicit PeerConnection(FileDescriptor socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  // One after the other with nothing between them; a descriptor (on a Unix socket) goes with the
  // first. False if the connection has ended. Any thread.
  bool send(std::span<const Frame> frames, int descriptor = -1);
  void flush();
  // The other side is gone: nothing is kept for it.
  void end();
  bool has_unsent() const { return has_unsent_.load(); }

  // The rest is for one thread alone. Reads what is there; false when the connection has ended or
  // what comes is no frame.
  using Receive = std::function<bool(uint32_t kind, uint64_t number, std::string_view payload)>;
  bool read(const Receive& receive);
  // The oldest descriptor that has come.
  FileDescriptor take_descriptor();

 private:
  struct Unsent {
    Frame frame;
    FileDescriptor descriptor;
    size_t done = 0;  // bytes
  };
  // False where there is no room.
  bool write(Unsent& unsent);
  void write_all();

  FileDescriptor socket_;
  std::mutex mutex_;
  std::deque<Unsent> unsent_;
  std::atomic<bool> has_unsent_ = false;
  bool ended_ = false;

  std::string incoming_;
  std::deque<FileDescriptor> descriptors_;
};

}  // namespace tessera
