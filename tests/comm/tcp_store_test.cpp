#include "comm/tcp_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/cryptography.h"
#include "base/text.h"
#include "base/thread_stacks.h"
#include "comm/store_protocol.h"
#include "tests/base/error_expectation.h"
#include "tests/comm/free_port.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

Deadline soon() { return steady_clock::now() + 60s; }

// What a client says that gives up for good: a CommError of a class that only tcp_store.cpp knows.
template <class Action>
std::string refusal(Action action) {
  return message_of<CommError>([&] {
    try {
      action();
    } catch (const CommError& error) {
      throw CommError(error);
    }
  });
}

class TcpStoreTest : public testing::Test {
 protected:
  TcpStore client(const std::string& token = "secret") { return {address(), token, 60s}; }
  Endpoint address() const { return {"127.0.0.1", server_.port()}; }
  // A connection that has said hello and holds the server's.
  FileDescriptor raw(std::string* theirs = nullptr) {
    FileDescriptor socket = connect_to(address(), soon());
    send_all(socket, hello_, soon());
    std::string answer = receive_exactly(socket, kStoreHelloSize, soon());
    if (theirs) *theirs = answer;
    return socket;
  }
  FileDescriptor accepted() {
    std::string theirs;
    FileDescriptor socket = raw(&theirs);
    send_all(socket, store_proof("secret", "client", hello_, theirs), soon());
    EXPECT_EQ(receive_exactly(socket, 1 + kStoreProofSize, soon())[0], '\1');
    return socket;
  }
  bool is_closed(const FileDescriptor& socket) {
    try {
      while (!receive_some(socket, 1000, soon()).empty()) {
      }
      return true;
    } catch (const CommError& error) {
      return std::string(error.what()) == "the connection was closed";
    }
  }

  std::string hello_ = store_hello(std::string(32, 'r'));
  TcpStoreServer server_{"secret"};
};

// What every store does.
void use(Store& a, Store& b) {
  EXPECT_EQ(a.find("x"), std::nullopt);
  std::string binary("\0\n\xff", 3);
  a.set("x", binary);
  EXPECT_EQ(b.find("x"), binary);
  EXPECT_EQ(b.get("x", 0ms), binary);
  b.set("empty", "");
  EXPECT_EQ(a.get("empty", 1s), "");
  EXPECT_EQ(a.add("n", 3), 3);
  EXPECT_EQ(b.add("n", -5), -2);
  EXPECT_EQ(a.get("n", 0ms), "-2");
  std::string large(kMaxStoreValue, 'v');
  a.set("large", large);
  EXPECT_EQ(b.get("large", 1s), large);
  a.set(std::string(kMaxStoreKey, 'k'), "1");

  a.set("x", binary);  // the same once more changes nothing
  expect_contains(message_of<CommError>([&] { b.set("x", "other"); }),
                  "'x' in the store is set already");
  expect_contains(message_of<CommError>([&] { b.add("x", 1); }),
                  "'x' in the store is not a counter");
  expect_contains(message_of<CommError>([&] { b.set("n", "1"); }), "'n' in the store is a counter");
  expect_contains(message_of<CommError>([&] { a.add("n", INT64_MIN); }), "overflows");
  expect_contains(message_of<CommError>([&] { a.set("", "1"); }), "must have 1 to 4096 bytes");
  expect_contains(message_of<CommError>([&] { a.find(std::string(kMaxStoreKey + 1, 'k')); }),
                  "has 4097");
  expect_contains(message_of<CommError>([&] { a.set("y", large + "v"); }), "'y' has 16777217");
  EXPECT_EQ(a.add("n", 0), -2);

  auto begin = steady_clock::now();
  expect_contains(message_of<CommError>([&] { a.get("never", 50ms); }),
                  "nobody set 'never' in the store within 0.05 s");
  EXPECT_GE(steady_clock::now() - begin, 50ms);
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    b.set("later", "yes");
  });
  EXPECT_EQ(a.get("later", 1h), "yes");
  later.join();
}

TEST(MemoryStore, KeepsTheContract) {
  MemoryStore store;
  use(store, store);
}

TEST_F(TcpStoreTest, KeepsTheContract) {
  TcpStore a = client(), b = client();
  use(a, b);
}

TEST_F(TcpStoreTest, PrefixesKeepGroupsApart) {
  auto store = std::make_shared<TcpStore>(address(), "secret", 60s);
  PrefixStore first(store, "attempt/0/"), second(store, "attempt/1/");
  first.set("x", "1");
  EXPECT_EQ(second.find("x"), std::nullopt);
  EXPECT_EQ(second.add("x", 2), 2);
  EXPECT_EQ(first.get("x", 0ms), "1");
}

TEST_F(TcpStoreTest, ManyThreadsCountTogether) {
  std::vector<std::thread> threads;
  TcpStore shared = client();
  std::atomic<int64_t> highest = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      TcpStore own = client();
      Store& store = t % 2 ? own : shared;
      for (int i = 0; i < 50; ++i) {
        int64_t n = store.add("n", 1);
        for (int64_t seen = highest; n > seen && !highest.compare_exchange_weak(seen, n);) {
        }
      }
      // All meet: each one waits while others still use the same client.
      store.set(cat("here/", t), "1");
      for (int other = 0; other < 8; ++other) store.get(cat("here/", other), 60s);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(highest, 400);
}

TEST_F(TcpStoreTest, AnotherJobsTokenIsRefused) {
  std::string place = to_string(address());
  for (const char* token : {"", "secre", "other"}) {
    expect_contains(refusal([&] { client(token); }),
                    cat("the store at ", place, " refused this process: another job's token"));
  }
  client().set("still", "there");
}

TEST(TcpStore, AServerWithoutTheTokenIsRefusedToo) {
  // It greets properly and says yes to any proof, as an impostor would.
  FileDescriptor listener = listen_on({"127.0.0.1", 0});
  Endpoint address{"127.0.0.1", local_port(listener)};
  std::thread impostor([&] {
    ::usleep(20'000);
    FileDescriptor socket;
    while (socket.get() < 0) socket = FileDescriptor(::accept(listener.get(), nullptr, nullptr));
    receive_exactly(socket, kStoreHelloSize, soon());
    send_all(socket, store_hello(std::string(32, 's')), soon());
    receive_exactly(socket, kStoreProofSize, soon());
    send_all(socket, cat('\1', std::string(32, 'p')), soon());
  });
  expect_contains(refusal([&] { TcpStore(address, "secret", 60s); }), "another job's token");
  impostor.join();
}

TEST(TcpStore, OtherProgramsAreNamedAsSuch) {
  struct Case {
    std::string says, expected;
    std::chrono::milliseconds deadline = 60s;
  };
  std::string newer = store_hello(std::string(32, 's'));
  newer[kStoreMagic.size()] = 7;
  for (const Case& c : {Case{"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the protocol"},
                        Case{"tes", "does not speak the protocol"},
                        Case{newer, "speaks version 7 of the protocol, this program version 3"},
                        // It may be on its way to its end, with another behind it: no refusal.
                        Case{"", "connected, but closed at once", 3s}}) {
    FileDescriptor listener = listen_on({"127.0.0.1", 0});
    Endpoint address{"127.0.0.1", local_port(listener)};
    std::atomic<bool> done = false;
    std::thread other([&] {
      while (!done) {
        FileDescriptor socket(::accept(listener.get(), nullptr, nullptr));
        if (socket.get() < 0) {
          ::usleep(5'000);
          continue;
        }
        receive_exactly(socket, kStoreHelloSize, soon());
        send_all(socket, c.says, soon());
      }
    });
    expect_contains(refusal([&] { TcpStore(address, "secret", c.deadline); }), c.expected);
    done = true;
    other.join();
  }
}

// As beside a launcher that has the first port to itself.
TEST(TcpStore, IsFoundAmongSeveralPlaces) {
  FileDescriptor other = listen_on({"127.0.0.1", 0});
  std::atomic<bool> done = false;
  std::thread web([&] {
    while (!done) {
      FileDescriptor client(::accept(other.get(), nullptr, nullptr));
      if (client) (void)!::write(client.get(), "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
      ::usleep(5'000);
    }
  });
  TcpStoreServer another("another job"), own("secret");
  int closed = free_port();
  std::vector<Endpoint> places;
  for (int port : {local_port(other), another.port(), closed, own.port()})
    places.push_back({"127.0.0.1", port});
  TcpStore client(places, "secret", 60s);
  client.set("a", "b");
  EXPECT_EQ(own.store().find("a"), "b");
  EXPECT_EQ(another.store().find("a"), std::nullopt);
  places.pop_back();
  expect_contains(message_of<CommError>([&] { TcpStore(places, "secret", 1s); }),
                  cat("no store answered at 127.0.0.1:", places[0].port, " to ", closed));
  done = true;
  web.join();
}

TEST_F(TcpStoreTest, SetsAtTheEndOfAConnectionWhatItWasAskedTo) {
  TcpStore other = client();
  other.set("taken", "by another");
  {
    TcpStore mortal = client();
    mortal.set_at_end("first", "1");
    mortal.set_at_end("gone", "yes");
    mortal.add("n", 1);
    EXPECT_EQ(other.find("gone"), std::nullopt);
  }
  // Asked after its end, so known: the server hears of both in order.
  EXPECT_EQ(other.find("gone"), "yes");
  EXPECT_EQ(other.find("first"), std::nullopt);
  { client().set_at_end("taken", "x"); }
  EXPECT_EQ(other.find("taken"), "by another");
  expect_contains(message_of<CommError>([&] { other.set_at_end("", "1"); }), "must have 1 to 4096");
}

TEST_F(TcpStoreTest, SilentConnectionsHoldUpNobody) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(connect_to(address(), soon()));
  client().set("a", "b");
  for (const FileDescriptor& socket : silent) {
    char byte;
    EXPECT_EQ(::recv(socket.get(), &byte, 1, MSG_DONTWAIT), -1);  // still there, and still silent
  }
}

TEST_F(TcpStoreTest, StrangersLeaveDescriptorsToOthers) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = std::min<rlim_t>(512, limit.rlim_cur / 4);
  std::vector<FileDescriptor> silent;
  for (rlim_t i = 0; i < most + 50; ++i) silent.push_back(connect_to(address(), soon()));
  client().set("a", "b");  // behind them in the queue
  EXPECT_TRUE(is_closed(silent.front()));
}

TEST_F(TcpStoreTest, ALackOfDescriptorsIsNamedAsSuch) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer takes descriptors to look at an exception";
  TcpStore store = client();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few{1, limit.rlim_max};  // those that are open stay open
  ::setrlimit(RLIMIT_NOFILE, &few);
  const std::string lost = message_of<CommError>([&] { store.set_at_end("a", "b"); });
  const std::string no_port = refusal([] { listen_on({"127.0.0.1", 0}); });
  ::setrlimit(RLIMIT_NOFILE, &limit);
  expect_contains(
      lost,
      "'a': no descriptor is left for a connection: Too many open files: this process may have ");
  EXPECT_EQ(lost.find("cannot be reached"), std::string::npos);
  expect_contains(no_port, "no descriptor is left");
}

TEST(TcpStore, NobodyThereIsAnErrorAtTheDeadline) {
  int port = free_port();
  auto begin = steady_clock::now();
  std::string message = message_of<CommError>([&] { TcpStore({"127.0.0.1", port}, "", 300ms); });
  EXPECT_LT(steady_clock::now() - begin, 60s);
  expect_contains(message,
                  cat("no store answered at 127.0.0.1:", port, " within 0.3 s (Connection ref"));
  expect_contains(message_of<CommError>([&] {
                    TcpStore({"no-such-host.invalid", 1}, "", 100ms);
                  }),
                  "cannot find the host 'no-such-host.invalid'");
}

TEST(TcpStore, WaitsForAServerThatStartsLater) {
  int port = free_port();
  std::unique_ptr<TcpStoreServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);
    server = std::make_unique<TcpStoreServer>("t", Endpoint{"127.0.0.1", port});
  });
  TcpStore client({"127.0.0.1", port}, "t", 60s);
  client.set("a", "b");
  late.join();
}

TEST_F(TcpStoreTest, APortInUseIsNamed) {
  std::string place = to_string(address());
  expect_contains(message_of<AddressInUseError>([&] { TcpStoreServer("t", address()); }),
                  place + " is in use");
  EXPECT_THROW(TcpStoreServer("t", address()), AddressInUseError);
  expect_contains(message_of<CommError>([&] {
                    TcpStoreServer("t", {"192.0.2.1", 0});
                  }),
                  "no interface of this host has the address");
}

TEST(TcpStore, ALostServerEndsEveryWaitAtOnce) {
  auto server = std::make_unique<TcpStoreServer>("t");
  TcpStore client({"127.0.0.1", server->port()}, "t", 60s);
  std::thread killer([&] {
    std::this_thread::sleep_for(50ms);
    server.reset();
  });
  auto begin = steady_clock::now();
  std::string message = message_of<CommError>([&] { client.get("k", 1h); });
  killer.join();
  EXPECT_LT(steady_clock::now() - begin, 60s);
  expect_contains(message, "lost the store at 127.0.0.1:");
  expect_contains(message, "at key 'k'");
  expect_contains(message_of<CommError>([&] { client.set("k", "v"); }), "lost the store");
}

TEST_F(TcpStoreTest, SurvivesClientsThatDieInTheMiddle) {
  std::string request = store_request(StoreOperation::kSet, "half", "value");
  std::string waiting = store_request(StoreOperation::kGet, "never", little_endian(1'000'000, 8));
  for (size_t cut = 0; cut <= hello_.size(); cut += 11) {
    send_all(connect_to(address(), soon()), hello_.substr(0, cut), soon());
  }
  raw();
  for (size_t cut = 0; cut < request.size(); cut += 5) {
    send_all(accepted(), request.substr(0, cut), soon());
  }
  send_all(accepted(), waiting, soon());
  TcpStore store = client();
  EXPECT_EQ(store.find("half"), std::nullopt);
  store.set("never", "now");
}

TEST_F(TcpStoreTest, ClosesConnectionsThatBreakTheProtocol) {
  FileDescriptor unknown = connect_to(address(), soon());
  send_all(unknown, std::string(kStoreHelloSize, 'x'), soon());
  EXPECT_TRUE(is_closed(unknown));

  std::vector<std::string> bad{little_endian(0xffffffff, 4),
                               little_endian(4, 4),
                               cat(little_endian(5, 4), '\1', little_endian(1, 4)),
                               store_request(StoreOperation::kGet, "k", "short"),
                               store_request(StoreOperation::kAdd, "k", "longer than 8"),
                               store_request(static_cast<StoreOperation>(9), "k", "")};
  for (const std::string& bytes : bad) {
    FileDescriptor socket = accepted();
    send_all(socket, bytes, soon());
    EXPECT_TRUE(is_closed(socket)) << hex(bytes);
  }
  // Requests that do not wait for their answers.
  FileDescriptor socket = accepted();
  std::string find = store_request(StoreOperation::kFind, "k", "");
  send_all(socket, find + find, soon());
  EXPECT_TRUE(is_closed(socket));
  // A key of the wrong size is a mistake, not an attack: it is answered.
  FileDescriptor mistaken = accepted();
  send_all(mistaken, store_request(StoreOperation::kFind, "", ""), soon());
  EXPECT_EQ(receive_exactly(mistaken, 5, soon())[4], static_cast<char>(StoreAnswer::kError));
  client().set("still", "there");
}

TEST(Endpoint, Forms) {
  auto parsed = [](const char* text) { return to_string(parse_endpoint(text, 29400, "--rdzv")); };
  EXPECT_EQ(parsed("node-1"), "node-1:29400");
  EXPECT_EQ(parsed("10.0.0.1:80"), "10.0.0.1:80");
  EXPECT_EQ(parsed("localhost:0"), "localhost:0");
  EXPECT_EQ(parsed("::1"), "[::1]:29400");
  EXPECT_EQ(parsed("[fe80::1]:5"), "[fe80::1]:5");
  for (const char* bad : {"", ":80", "a:", "a:x", "a:65536", "a:-1", "a:1x", "[::1", "[::1]x"}) {
    EXPECT_THROW(parsed(bad), UsageError) << bad;
  }
  EXPECT_TRUE(is_local_host("127.0.0.1"));
  EXPECT_FALSE(is_local_host("192.0.2.1"));
  EXPECT_TRUE(is_loopback("localhost"));
}

}  // namespace
}  // namespace tessera
