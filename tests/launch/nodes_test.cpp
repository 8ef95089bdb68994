// Several agents on one machine as the nodes of a job, over loopback.
#include <netinet/in.h>

#include <algorithm>
#include <atomic>

#include "comm/tcp_store.h"
#include "launch/node_group.h"
#include "tests/base/error_expectation.h"
#include "tests/comm/free_port.h"
#include "tests/launch/agent_fixture.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

class Nodes : public AgentTest {
 protected:
  Words c10d(int nodes = 2, int workers = 1) const {
    return {cat("--nnodes=", nodes),
            cat("--nproc_per_node=", workers),
            "--rdzv_backend=c10d",
            cat("--rdzv_endpoint=localhost:", port_),
            "--rdzv_id=job",
            "--monitor_interval=0.02",
            "--rdzv_conf=join_timeout=60"};
  }
  // Two nodes with the same words, told apart as hosts.
  std::pair<Result, Result> run_two(const Words& words) {
    pid_t a = start(words, "a", {"TESSERA_HOST_ID=host-a"});
    pid_t b = start(words, "b", {"TESSERA_HOST_ID=host-b"});
    Result first = finish(a);
    return {first, finish(b)};
  }

  // Until the first node serves the store: the next one is not the server.
  void wait_for_server() const {
    EXPECT_TRUE(comes_true([&] {
      try {
        connect_to({"localhost", port_}, std::chrono::steady_clock::now() + 1s);
        return true;
      } catch (const CommError&) {
        return false;
      }
    })) << "nobody listens";
  }

  // The number of a node by what its only worker prints. It follows the order in which agents join,
  // which need not be that in which they were started.
  static int node_of(const std::string& out) {
    return out.find("[rank 0]") != std::string::npos ? 0 : 1;
  }

  int port_ = free_port();
};

TEST_F(Nodes, RanksCountOverAllNodes) {
  Words place{"train", "print", "%RANK/%WORLD_SIZE %LOCAL_RANK/%LOCAL_WORLD_SIZE %TESSERA_HOST_ID",
              "--threads", "1"};
  pid_t a = start(c10d(2, 2) + Words{"--node_rank=1"} + place, "a", {"TESSERA_HOST_ID=host-a"});
  pid_t b = start(c10d(2, 1) + Words{"--node_rank=0"} + place, "b", {"TESSERA_HOST_ID=host-b"});
  Result second = finish(a), first = finish(b);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
  expect_contains(first.out, "[rank 0] 0/3 0/1 host-b\n");
  expect_contains(second.out, "[rank 1] 1/3 0/2 host-a\n");
  expect_contains(second.out, "[rank 2] 2/3 1/2 host-a\n");
  for (const Result& result : {first, second}) {
    expect_contains(result.err, cat("master_addr=localhost master_port=", port_));
    expect_contains(result.err, "the job's token is derived from --rdzv_id");
  }
}

TEST_F(Nodes, APortThatAConnectionHasIsTriedAgain) {
  FileDescriptor far = listen_on({"127.0.0.1", 0}),
                 near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto at = [](int port) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    place.sin_port = ::htons(static_cast<uint16_t>(port));
    return place;
  };
  const sockaddr_in own = at(port_), other = at(local_port(far));
  ASSERT_EQ(::bind(near.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  ASSERT_EQ(::connect(near.get(), reinterpret_cast<const sockaddr*>(&other), sizeof other), 0);
  const linger at_once{1, 0};  // closed, it leaves nothing behind
  ::setsockopt(near.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const Words words = c10d() + Words{"train", "print", "rank %RANK", "--threads", "1"};
  pid_t a = start(words, "a", {"TESSERA_HOST_ID=host-a"});
  pid_t b = start(words, "b", {"TESSERA_HOST_ID=host-b"});
  const char* warning = "in use by another process that does not listen there";
  EXPECT_TRUE(comes_true([&] { return has("a.err", warning) || has("b.err", warning); }));
  near.reset();
  Result first = finish(a), second = finish(b);
  EXPECT_EQ(first.status + second.status, 0) << first.err << second.err;
}

TEST_F(Nodes, NumbersByArrival) {
  auto [a, b] = run_two(c10d() + Words{"train", "print", "rank %RANK", "--threads", "1"});
  EXPECT_EQ(a.status + b.status, 0) << a.err << b.err;
  std::string both = a.out + b.out;
  expect_contains(both, "rank 0\n");
  expect_contains(both, "rank 1\n");
}

TEST_F(Nodes, StaticBackend) {
  Words words{"--nnodes=2", "--master_addr=127.0.0.1", cat("--master_port=", port_)};
  Words train{"train", "print", "node %RANK", "--threads", "1"};
  pid_t b = start(words + Words{"--node_rank=1"} + train, "b");
  std::this_thread::sleep_for(50ms);
  pid_t a = start(words + Words{"--node_rank", "0"} + train, "a");
  expect_contains(finish(a).out, "[rank 0] node 0\n");
  expect_contains(finish(b).out, "[rank 1] node 1\n");
}

TEST_F(Nodes, AFailureOnOneEndsAll) {
  auto [a, b] =
      run_two(c10d() + Words{"train", "rank", "1", "sleep", "100", "exit", "9", "end", "hang"});
  EXPECT_EQ(std::min(a.status, b.status), 1);  // the node whose worker was well
  EXPECT_EQ(std::max(a.status, b.status), 9);
  for (const std::string& err : {a.err, b.err}) {
    expect_contains(err, "tessera: rank 1 failed first: exit status 9 (node 1 on ");
  }
}

TEST_F(Nodes, AllRestartTogether) {
  auto [a, b] = run_two(c10d(2, 2) + Words{"--max_restarts=2", "train", "print",
                                           "%RANK of attempt %TESSERA_ATTEMPT", "attempt", "0",
                                           "rank", "3", "exit", "9", "end", "hang", "end"});
  EXPECT_EQ(a.status + b.status, 0) << a.err << b.err;
  std::string both = a.out + b.out;
  for (int rank = 0; rank < 4; ++rank) expect_contains(both, cat(rank, " of attempt 1\n"));
  expect_lacks(both, "of attempt 2");
}

TEST_F(Nodes, AnInterruptionOfOneIsOneOfAll) {
  Words words = c10d() + Words{"train", "on_term", "143", "print", "ready", "hang"};
  pid_t a = start(words, "a"), b = start(words, "b");
  wait_for("a.out", "ready");
  wait_for("b.out", "ready");
  ::kill(b, SIGTERM);
  for (pid_t agent : {a, b}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 143) << result.err;
    expect_contains(result.out, "saved");
  }
}

TEST_F(Nodes, ALostServerEndsTheOthers) {
  Words words = c10d() + Words{"train", "print", "rank %RANK ready", "hang"};
  pid_t a = start(words, "a");
  wait_for_server();
  pid_t b = start(words, "b");
  wait_for("a.out", "ready");
  wait_for("b.out", "ready");
  ::kill(a, SIGKILL);
  finish(a);
  Result result = finish(b);
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err, " was lost: the agent that serves the store of the job is gone");
}

// Neither its signs of life nor its leave are waited for, and what its end broke is not the cause.
TEST_F(Nodes, AKilledAgentIsNamedAtOnce) {
  Words words = c10d() + Words{"--rdzv_conf=keep_alive_interval=1000", "train", "print",
                               "rank %RANK is %PID", "hang"};
  pid_t a = start(words, "a");
  wait_for_server();
  pid_t b = start(words, "b");
  std::string ranks = wait_for("a.out", "is ");
  pid_t worker = number_behind(ranks, " is ");
  wait_for("b.out", "is ");
  ::kill(a, SIGSTOP);  // it sees both at the same time
  ::kill(b, SIGKILL);
  finish(b);
  ::kill(worker, SIGKILL);
  auto begin = std::chrono::steady_clock::now();
  ::kill(a, SIGCONT);
  Result result = finish(a);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_NE(result.status, 0);
  expect_contains(result.err, cat("tessera: node ", 1 - node_of(ranks), " on "));
  expect_contains(result.err, " was lost: its agent has ended, killed or together with its host\n");
  expect_lacks(result.err, "failed first");
}

TEST_F(Nodes, ALostNodeIsReplaced) {
  Words words = c10d() + Words{"--max_restarts=1",
                               "--rdzv_conf=keep_alive_interval=0.2,keep_alive_max_attempt=100",
                               "train",
                               "print",
                               "rank %RANK attempt %TESSERA_ATTEMPT",
                               "attempt",
                               "0",
                               "hang",
                               "end"};
  pid_t a = start(words, "a");
  wait_for_server();
  pid_t b = start(words, "b");
  const int lost = 1 - node_of(wait_for("a.out", "attempt 0"));
  wait_for("b.out", "attempt 0");
  ::kill(b, SIGKILL);
  finish(b);
  wait_for("a.err", "Restart 1 of at most 1");
  pid_t c = start(words, "c");
  Result first = finish(a), third = finish(c);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(third.status, 0) << third.err;
  expect_contains(first.err, cat("node ", lost, " on "));
  expect_contains(first.err, " was lost: its agent has ended");
  const int again = 1 - node_of(third.out);
  expect_contains(first.out, cat("[rank ", again, "] rank ", again, " attempt 1\n"));
  expect_contains(third.out, cat("[rank ", 1 - again, "] rank ", 1 - again, " attempt 1\n"));
}

// Each has its place in the next attempt already. The pause before the fourth restart is longer
// than this test may be late by.
TEST_F(Nodes, ANodeThatIsLostBetweenAttemptsIsReplaced) {
  Words words =
      c10d() + Words{"--max_restarts=4", "train", "print", "rank %RANK of %TESSERA_ATTEMPT"};
  for (int attempt = 0; attempt < 4; ++attempt)
    words = words + Words{"attempt", cat(attempt), "rank", "0", "exit", "9", "end", "hang", "end"};
  pid_t a = start(words, "a");
  wait_for_server();
  pid_t b = start(words, "b");
  wait_for("b.err", "Restart 4 of at most 4 in 4.0 s");
  ::kill(b, SIGKILL);
  finish(b);
  // A supervisor starts it again, as often as need be.
  Result third;
  EXPECT_TRUE(comes_true([&] {
    third = finish(start(words, "c"));
    return third.err.find("has all its 2 nodes already") == std::string::npos;
  }));
  Result first = finish(a);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(third.status, 0) << third.err;
  std::string both = first.out + third.out;
  for (int rank : {0, 1}) expect_contains(both, cat("rank ", rank, " of 4\n"));
}

// It is killed, or asked to end as a pod is, while the others are still to come.
TEST_F(Nodes, ANodeThatGoesWhileNodesMeetIsReplaced) {
  const Words numbered{"--nnodes=3", "--master_addr=127.0.0.1", "--rdzv_conf=join_timeout=60"};
  for (const bool by_number : {false, true}) {
    port_ = free_port();
    auto words = [&](int node) {
      Words all =
          by_number ? numbered + Words{cat("--master_port=", port_), "--node_rank"} : c10d(3);
      if (by_number) all.push_back(cat(node));
      return all + Words{"train", "print", "rank %RANK"};
    };
    pid_t a = start(words(0), "a");
    wait_for_server();
    pid_t b = start(words(1), "b");
    wait_for("a.err", ": 2 of 3 are here");
    ::kill(b, by_number ? SIGTERM : SIGKILL);
    finish(b);
    pid_t c = start(words(2), "c");
    std::this_thread::sleep_for(300ms);
    pid_t again = start(words(1), "b");
    std::string all;
    for (pid_t agent : {a, again, c}) {
      const Result result = finish(agent);
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out;
    }
    for (int rank : {0, 1, 2}) expect_contains(all, cat("rank ", rank, "\n"));
  }
}

TEST_F(Nodes, OneThatIsKilledAtAnyMomentKeepsNoPlace) {
  const Words words =
      c10d(3) + Words{"--rdzv_conf=join_timeout=120", "train", "print", "rank %RANK"};
  const pid_t a = start(words, "a");
  wait_for_server();
  for (int sends = 0; sends < 24; ++sends) {
    const Result killed = finish(start(words, "killed", {cat("LAUNCH_SENDS=", sends)}));
    ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  }
  const pid_t b = start(words, "b"), c = start(words, "c");
  for (pid_t agent : {b, c}) {
    const Result result = finish(agent);
    ASSERT_EQ(result.status, 0) << result.err;
  }
  EXPECT_EQ(finish(a).status, 0);
}

TEST_F(Nodes, SaysWhoIsMissing) {
  // The limit is more than one of the two may be late by.
  Words words = c10d(3) + Words{"--rdzv_conf=join_timeout=8", "train"};
  auto [a, b] = run_two(words);
  EXPECT_EQ(a.status, 1);
  EXPECT_EQ(b.status, 1);
  for (const std::string& err : {a.err, b.err}) {
    expect_contains(err, "tessera: node 2 of 3 did not arrive at localhost:");
    expect_contains(err, "within 8 s (here: node 0 on ");
  }
}

TEST_F(Nodes, AWaitIsToldOfLongBeforeItsEnd) {
  const Words end{"--rdzv_conf=join_timeout=600", "train"}, c10d{"--rdzv_backend=c10d"};
  const std::string here = cat("--rdzv_endpoint=localhost:", port_),
                    there = cat("--rdzv_endpoint=127.0.0.1:", free_port());
  const std::vector<pid_t> agents{
      start(Words{"--nnodes=4", "--rdzv_endpoint=nohost.invalid:29500"} + c10d + end, "lost"),
      start(Words{"--nnodes=2", here} + c10d + end, "alone"),
      start(Words{"--nnodes=2:3", there} + c10d + end, "elastic")};
  const std::string lost = wait_for("lost.err", "Trying for 600 s in all");
  expect_contains(lost, "no store answered at nohost.invalid:29500 within ");
  wait_for("alone.err", cat("Waiting for nodes at localhost:", port_, ": 1 of 2 are here (node 0"));
  wait_for("elastic.err", ": 1 of at least 2 are here (");
  for (const pid_t agent : agents) {
    ::kill(agent, SIGTERM);
    finish(agent);
  }
}

TEST_F(Nodes, NobodyServes) {
  pid_t b = start({"--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1",
                   cat("--master_port=", port_), "--rdzv_conf=timeout=1", "train"});
  Result result = finish(b);
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err, cat("no store answered at 127.0.0.1:", port_, " within 1 s"));
}

TEST_F(Nodes, DifferentOptionsAreNamed) {
  pid_t a = start(c10d() + Words{"--max_restarts=1", "train"}, "a");
  pid_t b = start(c10d() + Words{"--max_restarts=2", "train"}, "b");
  for (pid_t agent : {a, b}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 1);
    expect_contains(result.err, "--max_restarts 1");
    expect_contains(result.err, "--max_restarts 2");
  }
}

TEST_F(Nodes, AnotherTokenIsRefused) {
  Words words = c10d() + Words{"train", "hang"};
  start(words, "a", {"TESSERA_JOB_TOKEN=one-secret"});
  wait_for_server();
  Result other = finish(start(words, "b", {"TESSERA_JOB_TOKEN=another"}));
  EXPECT_EQ(other.status, 1);
  expect_contains(other.err, "refused this process: another job's token");
  expect_lacks(other.err, "one-secret");
  expect_lacks(other.err, "secret'");
}

// Each is told why, and the one that waits names them.
TEST_F(Nodes, WhoWaitsSaysThatOthersWereTurnedAway) {
  RunOptions options;
  options.nnodes = options.min_nodes = 2;
  options.rdzv_backend = RendezvousBackend::kC10d;
  options.rdzv_endpoint = Endpoint{"127.0.0.1", port_};
  options.is_host = true;
  options.join_timeout = 5;
  NodeGroup first(options, "secret");
  first.connect();
  RunOptions elastic = options;
  elastic.min_nodes = 1;
  elastic.is_host = false;
  auto refusal = [&](const std::string& token) -> std::string {
    try {
      JobStore(elastic, token).connect();
    } catch (const CommError& error) {
      return error.what();
    }
    return "";
  };
  expect_contains(refusal("another"), "refused this process: another job's token");
  expect_contains(refusal("secret"),
                  "was started with --nnodes 2, this node with --nnodes 1:2: give all nodes the");
  expect_contains(message_of<CommError>([&] { first.join([] { return false; }); }),
                  "; turned away: one with another job's token, one with --nnodes 1:2: start them");
}

TEST_F(Nodes, ThePortOfAnotherProgram) {
  FileDescriptor other = listen_on({"127.0.0.1", 0});
  Words place{cat("--rdzv_endpoint=127.0.0.1:", local_port(other))};
  Result alone = run(place + Words{"train"});
  EXPECT_EQ(alone.status, 1);
  expect_contains(alone.err, "is in use by another process: is another job running here?");

  std::atomic<bool> done = false;
  std::thread web([&] {
    while (!done) {
      FileDescriptor client(::accept(other.get(), nullptr, nullptr));
      if (client) (void)!::write(client.get(), "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
      std::this_thread::sleep_for(5ms);
    }
  });
  Result c10d = run(place + Words{"--nnodes=2", "--rdzv_backend=c10d", "train"});
  done = true;
  web.join();
  EXPECT_EQ(c10d.status, 1);
  expect_contains(c10d.err, "does not speak the protocol of tessera's store");
}

TEST_F(Nodes, ANodeTooManyAndOneTwice) {
  Words words = c10d() + Words{"train", "print", "ready", "hang"};
  start(words, "a");
  start(words, "b");
  wait_for("a.out", "ready");
  wait_for("b.out", "ready");
  Result third = finish(start(words, "c"));
  EXPECT_EQ(third.status, 1);
  expect_contains(third.err, "has all its 2 nodes already");
  Result twice = finish(start(c10d() + Words{"--node_rank=1", "train"}, "d"));
  expect_contains(twice.err, "a node with --node_rank 1 has already joined");
}

}  // namespace
}  // namespace tessera
