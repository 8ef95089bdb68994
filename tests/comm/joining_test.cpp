// Ranks that come together, and those that never come or do not belong there.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_stacks.h"
#include "comm/peer_sockets.h"
#include "tests/comm/fault_fixture.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

class Joining : public testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer)
      GTEST_SKIP() << "ThreadSanitizer does not follow forked processes: ranks are threads only";
  }
  static RankJob job(int world, milliseconds deadline) {
    RankJob result;
    result.way = Way::kMix;
    result.world = world;
    result.deadline = deadline;
    return result;
  }
};

TEST_F(Joining, NamesRanksThatHaveNotArrived) {
  RankJob absent = job(4, milliseconds(3000));
  absent.absent = {2, 3};
  auto results = run_ranks(absent, [](Communicator&) {});
  EXPECT_EQ(results[0].error, "ranks 2, 3 of 4 have not arrived within 3 s");
  EXPECT_EQ(results[1].error, "ranks 2, 3 of 4 have not arrived within 3 s");
  absent.absent = {0};
  results = run_ranks(absent, [](Communicator&) {});
  for (size_t rank : {1, 2, 3})
    EXPECT_EQ(results[rank].error, "rank 0 of 4 has not arrived within 3 s");
}

// It told the others its address, and ended before they were connected.
TEST(Connecting, ARankThatHasEndedIsNoticedBeforeTheDeadline) {
  for (bool same_host : {true, false}) {
    PeerListeners own("127.0.0.1");
    PeerAddress gone = std::make_unique<PeerListeners>("127.0.0.1")->address();
    gone.same_host = same_host;
    JobMember self;
    self.world_size = 3;
    auto start = std::chrono::steady_clock::now();
    try {
      connect_peers(own, self, {own.address(), gone, gone}, start + milliseconds(60'000));
      ADD_FAILURE() << "it connected";
    } catch (const CommError& error) {
      EXPECT_TRUE(contains(error.what(), "rank 1 was lost: its process has ended")) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(30'000));
  }
}

TEST(Connecting, ARankThatCannotWatchItsConnectionsSaysSo) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer takes descriptors to look at an exception";
  const PeerListeners own("127.0.0.1"), other("127.0.0.1");
  JobMember self;
  self.world_size = 2;
  const auto end = std::chrono::steady_clock::now() + milliseconds(60'000);
  const rlim_t before = limit_open_files(1);
  std::string said;
  try {
    connect_peers(own, self, {own.address(), other.address()}, end);
  } catch (const CommError& error) {
    said = error.what();
  }
  limit_open_files(before);
  EXPECT_EQ(said, "rank 0 cannot watch its connections: Invalid argument");
}

// Strangers that connect and say nothing: the first sixty are there before any rank is.
TEST(Connecting, SilentConnectionsHoldUpNobody) {
  for (bool same_host : {true, false}) {
    PeerListeners listeners[2]{PeerListeners("127.0.0.1"), PeerListeners("127.0.0.1")};
    std::vector<PeerAddress> peers{listeners[0].address(), listeners[1].address()};
    for (PeerAddress& peer : peers) peer.same_host = same_host;
    auto end = std::chrono::steady_clock::now() + milliseconds(60'000);
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 60; ++i)
      silent.push_back(connect_to({"127.0.0.1", listeners[0].address().port}, end));
    JobMember self[2];
    for (int rank : {0, 1}) {
      self[rank].rank = rank;
      self[rank].world_size = 2;
      self[rank].token = "secret";
    }
    std::vector<FileDescriptor> of_other;
    std::thread other([&] { of_other = connect_peers(listeners[1], self[1], peers, end); });
    std::vector<FileDescriptor> of_first = connect_peers(listeners[0], self[0], peers, end);
    other.join();
    EXPECT_TRUE(of_first[1] && of_other[0]);
    // Had they been served one after the other, it would have taken five minutes.
    EXPECT_LT(std::chrono::steady_clock::now(), end - milliseconds(30'000));
  }
}

TEST_F(Joining, RefusesAnotherToken) {
  for (int victim : {0, 1}) {  // rank 1 is on another host than rank 0, rank 2 on the same
    RankJob wrong = job(3, milliseconds(20'000));
    wrong.prepare = [victim](JobMember& member) {
      if (member.rank == victim) member.token = "guessed";
    };
    auto results = run_ranks(wrong, [](Communicator&) {});
    // Rank 2 may be refused first: then its words come before.
    EXPECT_TRUE(
        contains(results[1].error, "rank 1 cannot connect to rank 0: it has another job token"))
        << results[1].error;
    EXPECT_TRUE(contains(results[0].error, " did not know the job's token")) << results[0].error;
  }
}

TEST_F(Joining, ComparesWorldSizes) {
  RankJob wrong = job(2, milliseconds(20'000));
  wrong.prepare = [](JobMember& member) {
    if (member.rank == 1) member.world_size = 3;
  };
  for (const RankResult& result : run_ranks(wrong, [](Communicator&) {}))
    EXPECT_EQ(result.error, "rank 1 was started for 3 ranks and rank 0 for 2");
}

TEST_F(Joining, RefusesTheSameRankTwice) {
  RankJob wrong = job(2, milliseconds(3000));
  wrong.prepare = [](JobMember& member) { member.rank = 0; };
  auto results = run_ranks(wrong, [](Communicator&) {});
  bool first = contains(results[0].error, "rank 0 of 2 has joined already");
  bool second = contains(results[1].error, "rank 0 of 2 has joined already");
  EXPECT_NE(first, second) << results[0].error << "\n" << results[1].error;
}

TEST_F(Joining, RanksOfAnotherAttemptAreNotMet) {
  RankJob wrong = job(2, milliseconds(1500));
  wrong.prepare = [](JobMember& member) { member.attempt = member.rank; };
  auto results = run_ranks(wrong, [](Communicator&) {});
  EXPECT_EQ(results[0].error, "rank 1 of 2 has not arrived within 1.5 s");
}

TEST_F(Joining, NamesAnInterfaceThatDoesNotExist) {
  RankJob wrong = job(2, milliseconds(400));
  wrong.prepare = [](JobMember& member) { member.interface = "lp"; };
  for (const RankResult& result : run_ranks(wrong, [](Communicator&) {}))
    EXPECT_EQ(result.error, "there is no network interface 'lp' with an address (is it 'lo'?)");
}

TEST_F(Joining, UsesTheInterfaceOfTheName) {
  RankJob good = job(2, milliseconds(50'000));
  good.prepare = [](JobMember& member) { member.interface = "lo"; };
  for (const RankResult& result :
       run_ranks(good, [](Communicator& communicator) { sum_of_ones(communicator, "here"); }))
    EXPECT_EQ(result.error, "");
}

TEST_F(Joining, SharedMemoryBetweenHostsIsRefused) {
  RankJob wrong = job(2, milliseconds(20'000));
  wrong.way = Way::kSharedMemory;
  wrong.prepare = [](JobMember& member) { member.host_id = cat(member.rank); };
  for (const RankResult& result : run_ranks(wrong, [](Communicator&) {}))
    EXPECT_TRUE(contains(result.error, "they share no memory")) << result.error;
}

}  // namespace
}  // namespace tessera
