#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/memory_store.h"
#include "comm/tcp_socket.h"

namespace tessera {

// Serves a store to the processes of a job from a thread of its own, until it is destroyed. Each
// client must prove that it knows the job's token (store_protocol.h says how, and docs/launch.md
// what that protects); an empty token lets in whoever reaches the port.
class TcpStoreServer {
 public:
  // Binds to an address of this host ("" is every interface), port 0 to any free one.
  // AddressInUseError, CommError.
  explicit TcpStoreServer(std::string token, const Endpoint& bind = {"127.0.0.1", 0});
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const { return port_; }
  // Whether a client with another token came and was turned away.
  bool has_refused() const { return has_refused_; }
  // What it serves, for the process that it is in.
  Store& store() { return store_; }

 private:
  void serve();

  std::string token_;
  FileDescriptor listener_, wake_;
  int port_;
  MemoryStore store_;
  std::atomic<bool> stop_ = false, has_refused_ = false;
  std::thread thread_;
};

// The store of a TcpStoreServer. Every call has a deadline: that of get(), plus `round_trip` for
// the way there and back. Threads do not wait for each other: each call has a connection to itself.
// CommError that names the store and the key when the server is gone. Not to be used on both sides
// of a fork().
class TcpStore final : public Store {
 public:
  // Tries until the timeout is over, since the server may start later than its clients. CommError
  // at once when the store belongs to a job with another token or is no store, and after the
  // timeout when nobody answers. Meanwhile `waiting` is called with what it would say: it may
  // throw.
  using Waiting = std::function<void(const std::string& so_far)>;
  TcpStore(Endpoint server, std::string token, std::chrono::milliseconds timeout,
           std::chrono::milliseconds round_trip = std::chrono::seconds(30), Waiting waiting = {});
  // The server is at one of these places; what answers at the others is not of this job.
  TcpStore(const std::vector<Endpoint>& places, std::string token,
           std::chrono::milliseconds timeout,
           std::chrono::milliseconds round_trip = std::chrono::seconds(30), Waiting waiting = {});

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  // MemoryStore::replace().
  bool replace(const std::string& key, const std::optional<std::string>& expected,
               std::string_view value);
  // The server sets the key when this object or its process ends, however that comes about. In
  // place of what was asked for before.
  void set_at_end(const std::string& key, std::string_view value);

 private:
  struct Answer;
  FileDescriptor connect(Deadline deadline) const;
  FileDescriptor shake_hands(FileDescriptor socket, Deadline deadline) const;
  Answer ask_over(const FileDescriptor& socket, uint8_t operation, const std::string& key,
                  std::string_view argument, Deadline deadline) const;
  [[noreturn]] void throw_lost(const std::string& key, const CommError& error) const;
  Answer ask(uint8_t operation, const std::string& key, std::string_view argument,
             std::chrono::milliseconds wait = {});

  Endpoint server_;
  std::string token_;
  std::chrono::milliseconds round_trip_;
  std::mutex mutex_;
  std::vector<FileDescriptor> idle_;
  FileDescriptor until_end_;  // its end tells the server that of this object
};

}  // namespace tessera
