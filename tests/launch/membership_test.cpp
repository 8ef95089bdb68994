// One suite for both ways to keep a membership: an agent's own store, and etcd (skipped where it is
// not installed).
#include "launch/membership.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "launch/etcd_membership_store.h"
#include "launch/tcp_membership_store.h"
#include "tests/base/comes_true.h"
#include "tests/base/error_expectation.h"
#include "tests/launch/etcd_fixture.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

class MembershipSuite : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { etcd().reset(); }

  void SetUp() override {
    if (GetParam() == "own") {
      server_ = std::make_unique<TcpStoreServer>("token");
      return;
    }
    if (EtcdCluster::program().empty())
      GTEST_SKIP() << "etcd is not installed (tools/packages install etcd)";
    if (!etcd()) etcd() = std::make_unique<EtcdCluster>(1);
  }

  std::unique_ptr<MembershipStore> open(std::chrono::milliseconds longest_silence = 20s) {
    if (server_) {
      Endpoint place{"127.0.0.1", server_->port()};
      return std::make_unique<TcpMembershipStore>(std::make_unique<TcpStore>(place, "token", 60s),
                                                  longest_silence);
    }
    std::string job = testing::UnitTest::GetInstance()->current_test_info()->name();
    return std::make_unique<EtcdMembershipStore>(
        std::make_unique<EtcdClient>(etcd()->endpoints(), EtcdAccess{}), job, longest_silence);
  }

  // The last call is longer than a node may be late by: rounds of the most nodes do not wait for
  // it, nor do those behind the first. Short where the first one is to have no more than the least.
  static Membership::Settings settings(int least, int most, Membership::Seconds last_call = 60s) {
    Membership::Settings s;
    s.place = "here";
    s.min_nodes = least;
    s.max_nodes = most;
    s.max_restarts = 3;
    s.join_timeout = 60s;
    s.last_call = last_call;
    s.keep_alive_interval = 200ms;
    s.longest_silence = 20s;
    return s;
  }

  // An agent as far as membership goes.
  struct Node {
    Node(std::unique_ptr<MembershipStore> store, const Membership::Settings& settings, int number)
        : membership(std::make_unique<Membership>(std::move(store), settings)), port(number) {}
    // The next round; a round number below 0 if it was told to stop.
    std::future<Round> join(Membership::LastRound last = {}) {
      return std::async(std::launch::async, [this, last] {
        auto round = membership->join(
            last,
            [this] {
              return Endpoint{"127.0.0.1", port};
            },
            [this] { return stop.load(); });
        return round.value_or(Round{-1, -1, 0, "", {}, {}});
      });
    }
    std::unique_ptr<Membership> membership;
    int port;
    std::atomic<bool> stop = false;
  };

  std::unique_ptr<Node> node(const Membership::Settings& s) {
    return std::make_unique<Node>(open(), s, ++port_);
  }
  std::vector<std::unique_ptr<Node>> nodes(int count, const Membership::Settings& s) {
    std::vector<std::unique_ptr<Node>> all;
    for (int i = 0; i < count; ++i) all.push_back(node(s));
    return all;
  }
  static std::vector<Round> join_all(const std::vector<std::unique_ptr<Node>>& all,
                                     const Membership::LastRound& last = {}) {
    std::vector<std::future<Round>> started;
    for (const auto& n : all) started.push_back(n->join(last));
    std::vector<Round> rounds;
    for (auto& one : started) rounds.push_back(one.get());
    return rounds;
  }
  // Until the nodes have come as far as that.
  void wait_until(const std::function<bool(const MembershipState&)>& holds) {
    auto store = open();
    EXPECT_TRUE(comes_true([&] {
      const auto state = MembershipState::from_text(store->read().text);
      return state && holds(*state);
    }));
  }
  // Until a node, which is the first of that round then, has begun to form it.
  void wait_for_first_of(int round) {
    wait_until([&](const MembershipState& state) { return state.round == round; });
  }
  // One round, in which each has a place of its own.
  static void expect_one(const std::vector<Round>& rounds, int number, size_t size) {
    std::set<int> ranks;
    for (const Round& round : rounds) {
      EXPECT_EQ(round.number, number);
      EXPECT_EQ(round.nodes.size(), size);
      EXPECT_EQ(round.job_id, rounds[0].job_id);
      EXPECT_EQ(round.store.port, rounds[0].store.port);
      ranks.insert(round.node_rank);
    }
    EXPECT_EQ(ranks.size(), rounds.size());
  }

  static std::unique_ptr<EtcdCluster>& etcd() {
    static std::unique_ptr<EtcdCluster> cluster;
    return cluster;
  }
  std::unique_ptr<TcpStoreServer> server_;
  int port_ = 1000;
};

INSTANTIATE_TEST_SUITE_P(Over, MembershipSuite, testing::Values("own", "etcd"),
                         [](const auto& one) { return one.param; });

TEST_P(MembershipSuite, TheTextIsComparedAndSwapped) {
  auto a = open(), b = open();
  EXPECT_EQ(a->read().version, 0);
  EXPECT_TRUE(a->replace({}, "one"));
  EXPECT_FALSE(b->replace({}, "two"));
  MembershipStore::Text one = b->read();
  EXPECT_EQ(one.text, "one");
  EXPECT_TRUE(b->replace(one, "two"));
  EXPECT_FALSE(a->replace(one, "three"));
  EXPECT_TRUE(a->replace_by_last(a->read(), ""));
  EXPECT_EQ(b->read().text, "");
  EXPECT_GT(b->read().version, one.version);
}

TEST_P(MembershipSuite, NoChangeIsLostAmongMany) {
  constexpr int kThreads = 4, kChanges = 20;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      auto store = open();
      for (int done = 0; done < kChanges;) {
        auto text = store->read();
        int count = text.text.empty() ? 0 : std::stoi(text.text);
        done += store->replace(text, cat(count + 1));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(open()->read().text, cat(kThreads * kChanges));
}

TEST_P(MembershipSuite, WhoIsThere) {
  auto a = open(2s), b = open(2s), c = open(2s);
  a->appear("a");
  b->appear("b");
  c->appear("c");
  EXPECT_EQ(a->present({"a", "b", "c", "d"}), (std::set<std::string>{"a", "b", "c"}));
  b->leave();
  EXPECT_EQ(a->present({"a", "b"}), (std::set<std::string>{"a"}));
  // No sign of life from c: it is gone in time, and a, which gives some, is not.
  auto begin = steady_clock::now();
  while (a->present({"c"}).contains("c") && steady_clock::now() - begin < 60s) {
    a->keep_alive();
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_EQ(a->present({"a", "b", "c"}), (std::set<std::string>{"a"}));
  // One that was silent for long is there again with the next sign.
  c->keep_alive();
  EXPECT_EQ(a->present({"c"}), (std::set<std::string>{"c"}));
}

TEST_P(MembershipSuite, AWaitEndsWithAChangeOrInTime) {
  auto a = open(), b = open();
  a->replace({}, "one");
  auto text = a->read();
  auto begin = steady_clock::now();
  a->wait(text.version, 300ms);
  EXPECT_LT(steady_clock::now() - begin, 30s);
  std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    b->replace(text, "two");
  });
  begin = steady_clock::now();
  while (a->read().version == text.version && steady_clock::now() - begin < 60s)
    a->wait(text.version, 60s);
  EXPECT_LT(steady_clock::now() - begin, 30s);
}

TEST_P(MembershipSuite, ARoundOfAllThatMayBe) {
  auto all = nodes(3, settings(2, 3));
  auto rounds = join_all(all);
  expect_one(rounds, 0, 3);
  EXPECT_EQ(rounds[0].job_id.size(), 32U);
  // The store is that of node 0.
  for (size_t i = 0; i < 3; ++i) {
    if (rounds[i].node_rank == 0) {
      EXPECT_EQ(rounds[i].store.port, all[i]->port);
    }
  }
}

TEST_P(MembershipSuite, FewerAfterTheLastCall) {
  auto begin = steady_clock::now();
  expect_one(join_all(nodes(2, settings(1, 5, 4s))), 0, 2);
  EXPECT_GE(steady_clock::now() - begin, 4s);
}

TEST_P(MembershipSuite, TooFewFailInTime) {
  auto s = settings(3, 5);
  s.join_timeout = 500ms;
  auto all = nodes(2, s);
  auto first = all[0]->join(), second = all[1]->join();
  for (auto* one : {&first, &second}) {
    std::string text = message_of<CommError>([&] { one->get(); });
    expect_contains(text, " of at least 3 nodes arrived at here within 0.5 s");
  }
}

TEST_P(MembershipSuite, SurvivorsGoOnAtOnce) {
  auto all = nodes(4, settings(2, 4));
  auto rounds = join_all(all);
  int lost = rounds[1].node_rank;
  all.erase(all.begin() + 1);
  auto begin = steady_clock::now();
  auto next = join_all(all, {false, {lost}});
  expect_one(next, 1, 3);
  EXPECT_EQ(next[0].job_id, rounds[0].job_id);
  EXPECT_EQ(next[0].restarts, 0);
  EXPECT_LT(steady_clock::now() - begin, 30s);
  next = join_all(all, {true, {}});  // a worker failed
  expect_one(next, 2, 3);
  EXPECT_EQ(next[0].restarts, 1);
}

TEST_P(MembershipSuite, WhoComesLaterHasAPlaceInTheNextRound) {
  // The first begins this round without a third; the second the next one, with all of them.
  auto all = nodes(1, settings(2, 3, 300ms));
  all.push_back(node(settings(2, 3)));
  auto first = all[0]->join();
  wait_for_first_of(0);
  auto second = all[1]->join();
  expect_one({first.get(), second.get()}, 0, 2);
  std::atomic<int> told = 0;
  all[0]->membership->watch([&](const MemberNode* one, bool) {
    // There is one, it is gone again, and another one comes.
    EXPECT_EQ(one != nullptr, told != 1);
    EXPECT_FALSE(one && one->host.empty());
    ++told;
  });
  const auto wait_until_told = [&](int times) {
    EXPECT_TRUE(comes_true([&] { return told >= times; }));
    EXPECT_EQ(told, times);
  };
  {
    auto gone = node(settings(2, 3));
    auto waiting = gone->join();
    wait_until_told(1);
    gone->stop = true;
    EXPECT_EQ(waiting.get().number, -1);
  }
  wait_until_told(2);
  all.push_back(node(settings(2, 3)));
  auto late = all[2]->join();
  wait_until_told(3);
  second = all[1]->join();
  wait_for_first_of(1);
  first = all[0]->join();
  expect_one({first.get(), second.get(), late.get()}, 1, 3);
}

TEST_P(MembershipSuite, AStandbyTakesOver) {
  auto all = nodes(2, settings(2, 2));
  auto rounds = join_all(all);
  auto standby = node(settings(2, 2));
  auto waiting = standby->join();
  EXPECT_EQ(waiting.wait_for(1500ms), std::future_status::timeout);
  int lost = rounds[0].node_rank;
  all.erase(all.begin());
  auto survivor = all[0]->join({false, {lost}});
  expect_one({survivor.get(), waiting.get()}, 1, 2);
}

TEST_P(MembershipSuite, OneThatDidNotReachTheOthersComesWhereTheyAreTooFew) {
  auto all = nodes(2, settings(2, 2));
  auto rounds = join_all(all);
  auto cut_off = settings(2, 2);
  std::atomic<int> tried = 0;
  cut_off.require_reach = [&](const Endpoint&) {
    ++tried;
    throw CommError("no route");
  };
  auto standby = node(cut_off);
  auto waiting = standby->join();
  EXPECT_TRUE(comes_true([&] { return tried > 0; }));
  const size_t lost = rounds[0].node_rank == 0 ? 1 : 0;
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(lost));
  auto survivor = all[0]->join({false, {1}});
  expect_one({survivor.get(), waiting.get()}, 1, 2);
}

TEST_P(MembershipSuite, SurvivorsHaveTheirPlacesBeforeStandbys) {
  const auto s = settings(1, 2);
  auto all = nodes(2, s);
  join_all(all);
  auto standby = node(s);
  auto waiting = standby->join();
  wait_until([](const MembershipState& state) { return state.waiting.size() == 1; });
  auto first = all[0]->join();
  std::this_thread::sleep_for(700ms);  // the other survivor takes its time
  auto second = all[1]->join();
  expect_one({first.get(), second.get()}, 1, 2);
  standby->stop = true;
  EXPECT_EQ(waiting.get().number, -1);
}

TEST_P(MembershipSuite, AClosedJobIsSaidToBe) {
  auto all = nodes(1, settings(1, 2, 300ms));
  join_all(all);
  auto standby = node(settings(1, 2));
  all[0]->membership->close({JobEnd::Kind::kFailed, 9, false, "rank 0 failed\n\tits lines"});
  auto late = standby->join();
  try {
    late.get();
    FAIL() << "it joined";
  } catch (const JobHasEndedError& error) {
    EXPECT_EQ(error.end.kind, JobEnd::Kind::kFailed);
    EXPECT_EQ(error.end.status, 9);
    expect_contains(error.what(), "the job at here has ended (rank 0 failed)");
  }
}

TEST_P(MembershipSuite, TheLastToLeaveEndsTheJob) {
  auto all = nodes(2, settings(1, 2));
  join_all(all);
  for (auto& one : all)
    one->membership->leave({JobEnd::Kind::kInterrupted, 143, false, "interrupted"});
  auto late = node(settings(1, 2));
  EXPECT_THROW(late->join().get(), JobHasEndedError);
}

TEST_P(MembershipSuite, AStaleRoundIsTakenUp) {
  std::string job;
  {
    auto all = nodes(2, settings(1, 2));
    job = join_all(all)[0].job_id;
  }
  auto s = settings(1, 2, 300ms);
  s.longest_silence = 1s;
  auto late = node(s);
  Round round = late->join().get();
  EXPECT_EQ(round.number, 1);
  EXPECT_EQ(round.nodes.size(), 1U);
  EXPECT_EQ(round.job_id, job);
}

TEST_P(MembershipSuite, OneThatIsGoneWhileOthersComeIsDropped) {
  auto all = nodes(3, settings(2, 3, 300ms));
  auto first = all[0]->join();
  wait_for_first_of(0);
  all[0]->stop = true;  // the one that would begin the round
  first.get();
  all.erase(all.begin());
  expect_one(join_all(all), 0, 2);
}

TEST_P(MembershipSuite, OtherSettingsAreNamed) {
  auto all = nodes(1, settings(1, 2, 300ms));
  join_all(all);
  auto other = node(settings(1, 3));
  std::string text = message_of<CommError>([&] { other->join().get(); });
  expect_contains(text,
                  "was started with --nnodes 1:2 --max_restarts 3, this node with --nnodes 1:3");
}

TEST_P(MembershipSuite, NumbersThatWereAskedFor) {
  std::vector<std::unique_ptr<Node>> all;
  for (int rank : {2, 0, 1}) {
    auto s = settings(3, 3);
    s.node_rank = rank;
    all.push_back(node(s));
  }
  auto rounds = join_all(all);
  expect_one(rounds, 0, 3);
  EXPECT_EQ(rounds[0].node_rank, 2);
  EXPECT_EQ(rounds[1].node_rank, 0);
}

TEST_P(MembershipSuite, ANumberTwiceIsRefused) {
  auto s = settings(2, 2);
  s.node_rank = 1;
  s.longest_silence = 1s;
  auto all = nodes(2, s);
  auto first = all[0]->join();
  wait_for_first_of(0);
  std::string text = message_of<CommError>([&] { all[1]->join().get(); });
  expect_contains(text, "a node with --node_rank 1 has already joined at here");
  all[0]->stop = true;
  first.get();
}

// As etcd does for a user whose rights were taken away while the job ran.
class RefusingStore : public MembershipStore {
 public:
  Text read() override { throw UserError("refused"); }
  bool replace(const Text&, std::string_view) override { return false; }
  bool replace_by_last(const Text&, std::string_view) override { return false; }
  void appear(const std::string&) override {}
  void keep_alive() override {}
  void leave() override {}
  std::set<std::string> present(const std::set<std::string>&) override { return {}; }
  void wait(int64_t, std::chrono::milliseconds) override {}
};

TEST(MembershipEnd, AStoreThatRefusesDoesNotMakeAFailureOfAJobThatIsDone) {
  Membership membership(std::make_unique<RefusingStore>(), {});
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(membership.close({}));
  expect_contains(testing::internal::GetCapturedStderr(),
                  "nobody could be told that the job has ended: refused");
  EXPECT_NO_THROW(membership.wait_for_others(1s));
  EXPECT_NO_THROW(membership.leave({}));
}

}  // namespace
}  // namespace tessera
