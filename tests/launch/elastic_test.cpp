// Agents whose nodes leave and join, over an agent's own store and over an etcd of three members.
#include <algorithm>

#include "comm/tcp_store.h"
#include "tests/comm/free_port.h"
#include "tests/launch/agent_fixture.h"
#include "tests/launch/etcd_fixture.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

class Elastic : public AgentTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "own") return;
    if (EtcdCluster::program().empty())
      GTEST_SKIP() << "etcd is not installed (tools/packages install etcd)";
    etcd_ = std::make_unique<EtcdCluster>(3);
  }

  // Rounds of the most nodes wait for no last call. No stall is long enough to be silence.
  Words job(const std::string& nodes, const std::string& conf = "") const {
    std::string endpoint = etcd_ ? etcd_->endpoints_text() : cat("127.0.0.1:", port_);
    return {cat("--nnodes=", nodes),
            etcd_ ? "--rdzv_backend=etcd" : "--rdzv_backend=c10d",
            cat("--rdzv_endpoint=", endpoint),
            "--rdzv_id=job",
            "--monitor_interval=0.02",
            cat("--rdzv_conf=join_timeout=60,last_call_timeout=60,keep_alive_interval=0.3,"
                "keep_alive_max_attempt=100",
                conf.empty() ? "" : ",", conf)};
  }

  // For a job of which one node is to begin without others.
  static constexpr const char* kAlone = "last_call_timeout=1";

  // Rounds before `last` train until they are asked to end; that one is done soon.
  static Words worker(int last) {
    Words words{"train", "on_term", "143", "print",
                "%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID"};
    for (int round = 0; round < last; ++round)
      words = words + Words{"attempt", cat(round), "hang", "end"};
    return words + Words{"sleep", "300"};
  }

  // The first agent serves the own store, and must stay.
  pid_t start_first(const Words& words) {
    pid_t first = start(words, "a");
    EXPECT_TRUE(etcd_ || comes_true([&] {
                  try {
                    connect_to({"127.0.0.1", port_}, steady_clock::now() + 1s);
                    return true;
                  } catch (const CommError&) {
                    return false;
                  }
                }));
    return first;
  }

  // The environment of an agent that reaches the rendezvous alone.
  std::string reached() const {
    std::string ports = cat("LAUNCH_REACHES=,", port_, ",");
    for (size_t i = 0; etcd_ && i < etcd_->endpoints().size(); ++i)
      ports += cat(etcd_->endpoints()[i].port, ",");
    return ports;
  }

  // Until an agent's worker has begun a round of so many.
  void wait_for_round(const std::string& tag, int world, int round) const {
    wait_for(tag + ".out", cat("/", world, " round ", round, " "));
  }

  void kill_agent(pid_t agent) {
    ::kill(agent, SIGKILL);
    finish(agent);
  }

  std::unique_ptr<EtcdCluster> etcd_;
  const int port_ = free_port();
};

INSTANTIATE_TEST_SUITE_P(Over, Elastic, testing::Values("own", "etcd"),
                         [](const auto& one) { return one.param; });

TEST_P(Elastic, OneIsKilledAndANewOneComes) {
  Words words = job("2:3") + worker(2);
  pid_t a = start_first(words), b = start(words, "b"), c = start(words, "c");
  for (const char* tag : {"a", "b", "c"}) wait_for_round(tag, 3, 0);
  if (etcd_) etcd_->kill(1);
  auto begin = steady_clock::now();
  kill_agent(c);
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 1);
  EXPECT_LT(steady_clock::now() - begin, 25s);  // less than it may be silent
  if (etcd_) etcd_->start(1);
  pid_t d = start(words, "d");
  for (const char* tag : {"a", "b", "d"}) wait_for_round(tag, 3, 2);
  for (pid_t agent : {a, b, d}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  expect_contains(read_file(path("d.err")), "this one waits for a place");
  std::string both = read_file(path("a.err")) + read_file(path("b.err"));
  // Nodes are numbered as they arrive: it may have been the one that served the round's store.
  bool named = both.find(" was lost: its agent has ended, killed or together") != both.npos ||
               both.find("the agent that serves the store of the job is gone") != both.npos;
  EXPECT_TRUE(named) << both;
  expect_contains(both, "a node has come, ");
}

TEST_P(Elastic, AStandbyTakesOverAndOneThatIsNotNeededEnds) {
  Words words = job("2:2") + Words{"--max_restarts=1"} + worker(1);
  pid_t a = start_first(words), b = start(words, "b");
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 0);
  pid_t c = start(words, "c");
  pid_t d = 0;
  if (etcd_) {  // with the own store a third node of a fixed number is an error
    wait_for("c.err", "this one waits for a place");
    d = start(words, "d");
    wait_for("d.err", "this one waits for a place");
    kill_agent(b);
    EXPECT_EQ(finish(a).status, 0);
    EXPECT_EQ(finish(c).status + finish(d).status, 0);
    expect_contains(read_file(path("c.err")) + read_file(path("d.err")), "has ended");
  } else {
    EXPECT_EQ(finish(c).status, 1);
    ::kill(a, SIGTERM);
    EXPECT_EQ(finish(a).status, 143);
    EXPECT_EQ(finish(b).status, 143);
  }
}

TEST_P(Elastic, OneThatIsAskedToEndLeaves) {
  Words words = job("1:3") + worker(1);
  pid_t a = start_first(words), b = start(words, "b"), c = start(words, "c");
  for (const char* tag : {"a", "b", "c"}) wait_for_round(tag, 3, 0);
  ::kill(b, SIGTERM);
  Result left = finish(b);
  EXPECT_EQ(left.status, 143) << left.err;
  expect_contains(left.out, "saved");
  for (pid_t agent : {a, c}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.out, "saved");
    expect_contains(result.out, "/2 round 1 ");
  }
}

TEST_P(Elastic, AllAreAskedToEnd) {
  Words words = job("1:2") + worker(9);
  pid_t a = start_first(words), b = start(words, "b");
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 0);
  for (pid_t agent : {b, a}) ::kill(agent, SIGTERM);
  for (pid_t agent : {a, b}) EXPECT_EQ(finish(agent).status, 143);
}

// The signal comes while this node ends the round for another one's sake.
TEST_P(Elastic, OneIsAskedToEndRightBehindAnother) {
  Words words = job("1:2") + worker(9);
  pid_t a = start_first(words), b = start(words, "b");
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 0);
  ::kill(b, SIGTERM);
  wait_for("a.err", " leaves: workers finish");
  ::kill(a, SIGTERM);
  for (pid_t agent : {a, b}) EXPECT_EQ(finish(agent).status, 143);
}

TEST_P(Elastic, AFailureCountsAndEndsAlsoThoseThatWait) {
  const Words words =
      job("1:2") +
      Words{"--max_restarts=1", "train", "print", "%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID"} +
      Words{"rank", "0", "await", "go", "exit", "9", "end", "on_term", "143", "hang"};
  pid_t a = start_first(words), b = start(words, "b");
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 0);
  pid_t c = start(words, "c");
  wait_for("c.err", "this one waits for a place");
  write_file_atomic(path("go"), "");
  std::vector<int> status;
  for (pid_t agent : {a, b, c}) status.push_back(finish(agent).status);
  std::sort(status.begin(), status.end());
  EXPECT_EQ(status, (std::vector<int>{1, 1, 9}));
  std::string all = read_file(path("a.err")) + read_file(path("b.err"));
  expect_contains(all, "Restart 1 of at most 1");
  const std::string waiting = read_file(path("c.err"));
  expect_contains(waiting, "has ended (rank 0 failed first: exit status 9 (node 0 on ");
  expect_contains(waiting, "): 0/2 round 1 ");  // its last line
}

// Whether its own worker says what is wrong or one of the others, which did without it before.
TEST_P(Elastic, ANewcomerThatTheJobDoesNotRunWithLeaves) {
  const Words fails{"exit", "2"}, hangs{"hang"};
  for (const bool by_itself : {true, false}) {
    const Words job_words =
        job("1:2", kAlone) +
        Words{by_itself ? "--rdzv_id=one" : "--rdzv_id=other", "--max_restarts=0", "train"};
    const Words old = job_words + Words{"on_term", "143", "print", "round %TESSERA_ATTEMPT"} +
                      Words{"attempt", "0", "error", "First step done", "hang", "end"} +
                      Words{"attempt", "1"} + (by_itself ? hangs : fails) + Words{"end"};
    pid_t a = start_first(old);
    wait_for("a.err", "First step done");
    const Result newcomer = finish(start(job_words + (by_itself ? fails : hangs), "b"));
    EXPECT_EQ(newcomer.status, by_itself ? 2 : 1) << newcomer.err;
    expect_contains(newcomer.err, " failed first: exit status 2 (node ");
    expect_contains(newcomer.err, "the job did not come to its next step: it goes on without it");
    const Result result = finish(a);
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.out, "round 2\n");
    expect_contains(result.err, "it goes on without that node");
  }
}

TEST_P(Elastic, ANewcomerWaitsForTheCheckpointThatIsSavedForIt) {
  const Words words =
      job("1:2", kAlone) + Words{"train", "--checkpoint_dir", "c", "on_term", "143"} +
      Words{"on_save",         "print", "%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID",
            "attempt",         "0",     "error",
            "First step done", "hang",  "end"};
  pid_t a = start_first(words);
  wait_for("a.err", "First step done");
  pid_t b = start(words, "b");
  wait_for("a.err", "cannot be saved: it goes on with the nodes that it has");
  const std::string out = read_file(path("a.out"));
  expect_lacks(out, "round 1");
  ::kill(number_behind(out, "round 0 "), SIGUSR2);  // there is room again
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 1);
  for (pid_t agent : {a, b}) EXPECT_EQ(finish(agent).status, 0);
  expect_contains(read_file(path("a.err")), "a node has come, ");
}

// As one does that comes while the rank has not yet taken the signal of another.
TEST_P(Elastic, ARequestToSaveThatIsLostIsSentAgain) {
  const Words words = job("1:2", kAlone) +
                      Words{"train", "--checkpoint_dir", "c", "on_term", "143"} +
                      Words{"print", "%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID"} +
                      Words{"attempt", "0", "error", "First step done", "lose_request", "on_save"} +
                      Words{"error", "lost", "hang", "end"};
  pid_t a = start_first(words);
  wait_for("a.err", "First step done");
  pid_t b = start(words, "b");
  wait_for("a.err", "lost");
  wait_for("a.err", "cannot be saved: it goes on with the nodes that it has");
  ::kill(number_behind(read_file(path("a.out")), "round 0 "), SIGUSR2);  // there is room again
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 1);
  for (pid_t agent : {a, b}) EXPECT_EQ(finish(agent).status, 0);
}

TEST_P(Elastic, NoRoundBeginsForANewcomerThatHasGoneAgain) {
  const Words words = job("1:2", kAlone) +
                      Words{"train", "--checkpoint_dir", "c", "on_term", "143"} +
                      Words{"on_save", "print", "%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID"} +
                      Words{"attempt", "0", "error", "First step done", "hang", "end"};
  pid_t a = start_first(words);
  wait_for("a.err", "First step done");
  pid_t b = start(words, "b");
  wait_for("a.err", "cannot be saved: it goes on with the nodes that it has");
  ::kill(b, SIGTERM);
  EXPECT_EQ(finish(b).status, 143);
  wait_for("a.err", "is gone again");
  ::kill(number_behind(read_file(path("a.out")), "round 0 "), SIGUSR2);  // there is room again
  wait_for("a.err", "[rank 0] Saved as asked");
  pid_t c = start(words, "c");
  for (const char* tag : {"a", "c"}) wait_for_round(tag, 2, 1);
  for (pid_t agent : {a, c}) EXPECT_EQ(finish(agent).status, 0);
}

// The other one has failed without it, and does so once more.
TEST_P(Elastic, ANewcomerIsNotToBlameForWhatFailedBefore) {
  const Words job_words = job("1:2", kAlone) + Words{"--max_restarts=3", "train", "on_term", "143"};
  Words old = job_words;
  for (const char* round : {"0", "1"})
    old = old +
          Words{"attempt", round, "error", "First step done", "sleep", "300", "exit", "9", "end"};
  pid_t a = start_first(old + Words{"attempt", "2", "exit", "9", "end"});
  wait_for("a.err", "Restart 2 of at most 3");  // it comes in this second
  const Result newcomer = finish(start(
      job_words + Words{"print", "round %TESSERA_ATTEMPT", "attempt", "2", "hang", "end"}, "b"));
  EXPECT_EQ(newcomer.status, 0) << newcomer.err;
  expect_contains(newcomer.out, "round 3\n");
  const Result result = finish(a);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "Restart 3 of at most 3");
  expect_lacks(result.err, "it goes on without that node");
}

TEST_P(Elastic, ANewcomerThatDoesNotReachTheOthersLeaves) {
  const Words words = job("1:3", "join_timeout=6,last_call_timeout=8") +
                      Words{"train", "on_term", "143", "print"} +
                      Words{"%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID"} +
                      Words{"error", "First step done", "hang"};
  const pid_t a = start_first(words), b = start(words, "b");
  for (const char* tag : {"a", "b"}) wait_for_round(tag, 2, 0);
  const Result c = finish(start(words, "c", {reached(), "LAUNCH_REFUSES=1"}));
  EXPECT_EQ(c.status, 1);
  expect_contains(c.err, "this node leaves the others, as it did not reach the store of 2 rounds");
  for (const char* tag : {"a", "b"}) {
    const std::string warning = wait_for(cat(tag, ".err"), "round 1 of nodes 0 on ");
    expect_contains(warning, " did not come about: ");
  }
  // Both train again, in the same round.
  std::string last[2];
  for (int i = 0; i < 12'000 && (last[0].empty() || last[0] != last[1]); ++i) {
    std::this_thread::sleep_for(5ms);
    for (size_t node = 0; node < 2; ++node) {
      const std::string out = read_file(path(node == 0 ? "a.out" : "b.out"));
      const size_t begin = out.rfind("/2 round "), end = out.find_last_of(' ');
      last[node] = end > begin ? out.substr(begin, end - begin) : "";
      if (last[node] == "/2 round 0") last[node] = "";
    }
  }
  EXPECT_EQ(last[0], last[1]);
  EXPECT_FALSE(last[0].empty());
  for (pid_t agent : {a, b}) ::kill(agent, SIGTERM);
  for (pid_t agent : {a, b}) EXPECT_EQ(finish(agent).status, 143);
}

// While it finds node 0 of the round out of its reach, others come and go.
TEST_P(Elastic, ANewcomerBehindAFirewallDisturbsNobody) {
  const Words words = job("1:2", cat(kAlone, ",join_timeout=600")) +
                      Words{"train", "on_term", "143", "print"} +
                      Words{"%RANK/%WORLD_SIZE round %TESSERA_ATTEMPT %PID", "hang"};
  const pid_t a = start_first(words);
  wait_for_round("a", 1, 0);
  const pid_t b = start(words, "b", {reached()});
  wait_for("b.err", "this node does not reach the store of round 0 at ");
  const pid_t c = start(words, "c");
  for (const char* tag : {"a", "c"}) wait_for_round(tag, 2, 1);
  for (pid_t agent : {b, c, a}) {
    ::kill(agent, SIGTERM);
    EXPECT_EQ(finish(agent).status, 143);
  }
}

TEST_P(Elastic, NodesAreAskedToEndWhileTheyMeet) {
  const Words words = job("1:3", "last_call_timeout=60") + Words{"train", "on_term", "143", "hang"};
  const pid_t a = start_first(words), b = start(words, "b"), c = start(words, "c", {reached()});
  for (const char* tag : {"a", "b"}) wait_for(cat(tag, ".err"), "Waiting for nodes at ");
  wait_for("c.err", "no store answered at ");
  for (pid_t agent : {b, c, a}) {
    ::kill(agent, SIGTERM);
    EXPECT_EQ(finish(agent).status, 143);
  }
}

TEST_P(Elastic, TheFirstNodeIsKilled) {
  Words words = job("1:3") + worker(1);
  pid_t a = start_first(words), b = start(words, "b"), c = start(words, "c");
  for (const char* tag : {"a", "b", "c"}) wait_for_round(tag, 3, 0);
  kill_agent(a);  // serves the own store; over etcd it is one like another
  for (pid_t agent : {b, c}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, etcd_ ? 0 : 1) << result.err;
    if (etcd_) {
      expect_contains(result.out, "/2 round 1 ");
    } else {
      expect_contains(result.err, "lost the store at 127.0.0.1:");
    }
  }
}

TEST_P(Elastic, NodeZeroOfTheRoundIsKilled) {
  Words words = job("1:3") + worker(1);
  std::map<std::string, pid_t> agents{{"a", start_first(words)}};
  agents["b"] = start(words, "b");
  agents["c"] = start(words, "c");
  std::string zero;
  for (const auto& [tag, agent] : agents) {
    wait_for_round(tag, 3, 0);
    if (read_file(path(tag + ".out")).find("[rank 0] ") != std::string::npos) zero = tag;
  }
  if (!etcd_ && zero == "a") return;  // seen above
  kill_agent(agents.at(zero));
  agents.erase(zero);
  for (const auto& [tag, agent] : agents) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.out, "/2 round 1 ");
  }
}

TEST_P(Elastic, ANodeOfAFixedNumberIsRefused) {
  if (etcd_) GTEST_SKIP() << "an etcd is asked for rounds whatever --nnodes is";
  start_first(job("2:3") + worker(0));
  const Result fixed = finish(start(job("2") + worker(0), "b"));
  EXPECT_EQ(fixed.status, 1);
  expect_contains(fixed.err, "was started with --nnodes 2:3, this node with --nnodes 2: give all");
}

TEST_P(Elastic, TooFewAreNamedInTime) {
  // More than one of the two may be late by.
  Words words = job("3:4", "timeout=6") + worker(0);
  pid_t a = start_first(words), b = start(words + Words{"--checkpoint_dir", "c"}, "b");
  for (pid_t agent : {a, b}) {
    Result result = finish(agent);
    EXPECT_EQ(result.status, 1);
  }
  expect_contains(
      read_file(path("a.err")),
      "--nnodes 3:4 without --checkpoint_dir: whenever a node comes or is lost, `train`");
  expect_lacks(read_file(path("b.err")), "without --checkpoint_dir");
  expect_contains(read_file(path("a.err")) + read_file(path("b.err")),
                  "2 of at least 3 nodes arrived at 127.0.0.1:");
}

}  // namespace
}  // namespace tessera
