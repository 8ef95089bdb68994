#include "comm/tcp_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/store_protocol.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// One attempt to connect and to be greeted: a store answers at once.
constexpr milliseconds kHandshake{10'000};
// The same where the store may be at another place: it is looked for there meanwhile.
constexpr milliseconds kGlance{2'000};
constexpr size_t kMaxAnswer = 1 + kMaxStoreValue;

// The server refused, or is no store: trying again is of no use.
struct RefusedError : CommError {
  using CommError::CommError;
};

}  // namespace

struct TcpStore::Answer {
  StoreAnswer kind;
  std::string text;
};

TcpStore::TcpStore(Endpoint server, std::string token, milliseconds timeout,
                   milliseconds round_trip, Waiting waiting)
    : TcpStore(std::vector<Endpoint>{std::move(server)}, std::move(token), timeout, round_trip,
               std::move(waiting)) {}

TcpStore::TcpStore(const std::vector<Endpoint>& places, std::string token, milliseconds timeout,
                   milliseconds round_trip, Waiting waiting)
    : token_(std::move(token)), round_trip_(round_trip) {
  timeout = std::min(timeout, kLongestStoreWait);
  const auto begin = steady_clock::now();
  Deadline deadline = begin + timeout;
  milliseconds pause{20}, glance = waiting || places.size() > 1 ? kGlance : kHandshake;
  while (true) {
    std::string reason;
    for (const Endpoint& place : places) {
      server_ = place;
      try {
        idle_.push_back(connect(std::min(deadline, steady_clock::now() + glance)));
        return;
      } catch (const RefusedError& error) {
        if (places.size() == 1) throw;
        reason = error.what();
      } catch (const CommError& error) {
        if (reason.empty()) reason = error.what();
      }
    }
    auto nobody_within = [&](double seconds) {
      std::string last = places.size() > 1 ? cat(" to ", places.back().port) : "";
      return cat("no store answered at ", to_string(places.front()), last, " within ", seconds,
                 " s (", reason,
                 "): is its process running, and can this host reach that address?");
    };
    const auto now = steady_clock::now();
    if (now + pause >= deadline)
      throw CommError(nobody_within(static_cast<double>(timeout.count()) / 1000));
    if (waiting)
      waiting(nobody_within(std::chrono::floor<std::chrono::seconds>(now - begin).count()));
    if (places.size() == 1) glance = kHandshake;  // for one that is slow
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(500));
  }
}

FileDescriptor TcpStore::connect(Deadline deadline) const {
  deadline = std::min(deadline, steady_clock::now() + kHandshake);
  return shake_hands(connect_to(server_, deadline), deadline);
}

FileDescriptor TcpStore::shake_hands(FileDescriptor socket, Deadline deadline) const {
  std::string place = to_string(server_);
  std::string hello = store_hello(secret_random_bytes(32));
  send_all(socket, hello, deadline);
  std::string theirs;
  try {
    // Compared as they come: something else may send fewer bytes and wait.
    while (theirs.size() < kStoreHelloSize) {
      std::string more = receive_some(socket, kStoreHelloSize - theirs.size(), deadline);
      if (more.empty()) break;
      theirs += more;
      size_t common = std::min(theirs.size(), kStoreMagic.size());
      if (theirs.compare(0, common, kStoreMagic, 0, common) != 0) break;
    }
  } catch (const CommError& error) {
    if (theirs.empty()) throw CommError(cat("connected, but ", error.what()));
  }
  if (theirs.empty()) throw CommError("connected, but closed at once");
  auto version = store_hello_version(theirs);
  if (!version) {
    throw RefusedError(cat("what answers at ", place,
                           " does not speak the protocol of tessera's store: is it the port of "
                           "another program? Choose another port for this job"));
  }
  if (version != kStoreVersion) {
    throw RefusedError(cat("the store at ", place, " speaks version ", *version,
                           " of the protocol, this program version ", kStoreVersion,
                           ": start the same tessera everywhere"));
  }
  send_all(socket, store_proof(token_, "client", hello, theirs), deadline);
  std::string refusal = cat("the store at ", place,
                            " refused this process: another job's token. Is another job on that "
                            "port, or has TESSERA_JOB_TOKEN (or the run id) another value there?");
  if (receive_exactly(socket, 1, deadline) != "\1") throw RefusedError(refusal);
  std::string proof = receive_exactly(socket, kStoreProofSize, deadline);
  if (!equal_in_constant_time(proof, store_proof(token_, "server", hello, theirs))) {
    throw RefusedError(refusal);
  }
  return socket;
}

TcpStore::Answer TcpStore::ask(uint8_t operation, const std::string& key, std::string_view argument,
                               milliseconds wait) {
  check_store_limits(key, argument);
  Deadline deadline = steady_clock::now() + std::min(wait, kLongestStoreWait) + round_trip_;
  Answer result;
  try {
    FileDescriptor socket;
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        socket = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (socket.get() < 0) socket = connect(deadline);
    result = ask_over(socket, operation, key, argument, deadline);
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  } catch (const CommError& error) {
    throw_lost(key, error);
  }
  if (result.kind == StoreAnswer::kError) throw CommError(result.text);
  if (result.kind == StoreAnswer::kTimeout) throw_store_timeout(key, wait);
  return result;
}

TcpStore::Answer TcpStore::ask_over(const FileDescriptor& socket, uint8_t operation,
                                    const std::string& key, std::string_view argument,
                                    Deadline deadline) const {
  send_all(socket, store_request(static_cast<StoreOperation>(operation), key, argument), deadline);
  uint64_t size = from_little_endian(receive_exactly(socket, 4, deadline));
  if (size < 1 || size > kMaxAnswer) throw CommError("its answer has an impossible size");
  std::string answer = receive_exactly(socket, size, deadline);
  return {static_cast<StoreAnswer>(answer[0]), answer.substr(1)};
}

void TcpStore::throw_lost(const std::string& key, const CommError& error) const {
  const bool own = dynamic_cast<const DescriptorsError*>(&error) != nullptr;
  throw CommError(cat("lost the store at ", to_string(server_), " at key '", key,
                      "': ", error.what(),
                      own ? "" : "; the process that served it ended or cannot be reached"));
}

void TcpStore::set_at_end(const std::string& key, std::string_view value) {
  check_store_limits(key, value);
  Deadline deadline = steady_clock::now() + round_trip_;
  Answer result;
  try {
    if (!until_end_) until_end_ = connect(deadline);
    result =
        ask_over(until_end_, static_cast<uint8_t>(StoreOperation::kAtEnd), key, value, deadline);
  } catch (const CommError& error) {
    throw_lost(key, error);
  }
  if (result.kind == StoreAnswer::kError) throw CommError(result.text);
}

void TcpStore::set(const std::string& key, std::string_view value) {
  ask(static_cast<uint8_t>(StoreOperation::kSet), key, value);
}

std::string TcpStore::get(const std::string& key, milliseconds timeout) {
  auto wait = static_cast<uint64_t>(std::max<int64_t>(timeout.count(), 0));
  return ask(static_cast<uint8_t>(StoreOperation::kGet), key, little_endian(wait, 8), timeout).text;
}

std::optional<std::string> TcpStore::find(const std::string& key) {
  Answer answer = ask(static_cast<uint8_t>(StoreOperation::kFind), key, "");
  if (answer.kind == StoreAnswer::kNone) return std::nullopt;
  return answer.text;
}

bool TcpStore::replace(const std::string& key, const std::optional<std::string>& expected,
                       std::string_view value) {
  check_store_limits(key, value);
  return ask(static_cast<uint8_t>(StoreOperation::kReplace), key,
             store_replacement(expected, value))
             .text == "1";
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  auto bits = static_cast<uint64_t>(amount);
  std::string sum =
      ask(static_cast<uint8_t>(StoreOperation::kAdd), key, little_endian(bits, 8)).text;
  int64_t value = 0;
  std::from_chars(sum.data(), sum.data() + sum.size(), value);
  return value;
}

}  // namespace tessera
