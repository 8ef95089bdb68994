#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "comm/memory_store.h"

namespace tessera {

// The bytes between a TcpStore and its TcpStoreServer. Integers are little-endian.
//
//   client: "tessera\n", u32 version, 32 random bytes
//   server: the same, with random bytes of its own
//   client: HMAC-SHA-256(token, "client" + both random texts)
//   server: one byte, 1; HMAC-SHA-256(token, "server" + both random texts).   Or one byte, 0:
//   refused
//
// then requests, each answered before the next is sent:
//
//   client: u32 size, then so many bytes: u8 operation, u32 size of key, key, argument
//           set: value.   get: u64 milliseconds.   find: nothing.   add: i64 amount
//           at_end: value, to be set when this connection ends, in place of an earlier one
//           replace: u32 size of the expected value (2^32 - 1: none), expected value, value
//   server: u32 size, then so many bytes: u8 answer, text
//
// The token itself never travels, and an old conversation cannot be replayed. Requests are neither
// encrypted nor signed. Before a client has proved that it knows the token it is sent 45 bytes at
// most and no more than 76 of its bytes are kept.
constexpr uint32_t kStoreVersion = 3;
constexpr std::string_view kStoreMagic = "tessera\n";
constexpr size_t kStoreHelloSize = 8 + 4 + 32, kStoreProofSize = 32;
enum class StoreOperation : uint8_t { kSet = 1, kGet, kFind, kAdd, kAtEnd, kReplace };
enum class StoreAnswer : uint8_t { kValue = 1, kNone, kTimeout, kError };

std::string store_hello(std::string_view random);
// The version in a hello; no value where it is no hello at all.
std::optional<uint32_t> store_hello_version(std::string_view hello);
// `side` is "client" or "server".
std::string store_proof(std::string_view token, std::string_view side,
                        std::string_view client_hello, std::string_view server_hello);
std::string store_request(StoreOperation operation, std::string_view key,
                          std::string_view argument);
std::string store_replacement(const std::optional<std::string>& expected, std::string_view value);
std::string little_endian(uint64_t number, size_t bytes);
uint64_t from_little_endian(std::string_view bytes);

// The server's side of one conversation, without a socket: bytes go in, answers come out. Anything
// that breaks the protocol closes it.
class StoreSession {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `random`: 32 bytes that were never used before.
  StoreSession(MemoryStore& store, std::string_view token, std::string_view random)
      : store_(store), token_(token), hello_(store_hello(random)) {}

  void receive(std::string_view bytes, TimePoint now);
  // The connection has ended: does what is left for that.
  void end();
  // Answers a get() that waits, once its key is there or its time is over.
  void resume(TimePoint now);
  // Until when a get() waits.
  std::optional<TimePoint> waits_until() const { return until_; }
  bool is_accepted() const { return stage_ >= Stage::kSize; }
  // It speaks the protocol, and has another token.
  bool is_refused() const { return refused_; }
  // To be closed as soon as output() is sent.
  bool is_closed() const { return closed_; }
  // To be sent; whoever sends it removes it here.
  std::string& output() { return output_; }

 private:
  enum class Stage { kHello, kProof, kSize, kRequest };
  void expect(Stage stage, size_t bytes);
  void take(std::string_view message, TimePoint now);
  void check_hello(std::string_view hello);
  void check_proof(std::string_view proof);
  void check_size(uint64_t size);
  void do_request(std::string_view request, TimePoint now);
  void do_operation(StoreOperation operation, const std::string& key, std::string_view argument,
                    TimePoint now);
  void do_replace(const std::string& key, std::string_view argument);
  void answer(StoreAnswer kind, std::string_view text);

  MemoryStore& store_;
  std::string token_, hello_, client_hello_;
  Stage stage_ = Stage::kHello;
  size_t needed_ = kStoreHelloSize;  // bytes of the message of this stage
  bool closed_ = false, refused_ = false;
  std::string input_, output_;
  std::string last_key_, last_value_;  // to be set at the end; no key: nothing
  std::string awaited_;                // key of the get() that waits
  std::optional<TimePoint> until_;
};

}  // namespace tessera
