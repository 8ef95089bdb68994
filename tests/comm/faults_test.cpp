// What the other ranks see when one dies, stops, fails or leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_stacks.h"
#include "comm/connect.h"
#include "tests/base/child_process.h"
#include "tests/comm/fault_fixture.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

// A sum of the group's ones; large enough for several rounds.
void sum(Communicator& communicator, const CommGroup& group, std::string_view label) {
  std::vector<float> ones(1 << 20, 1.f), result(1 << 20);
  communicator.run({.action = CommAction::kAllReduce,
                    .group = &group,
                    .dtype = DType::kF32,
                    .output_dtype = DType::kF32,
                    .inner = 1 << 20,
                    .input = ones.data(),
                    .output = result.data(),
                    .label = label});
  require(result.back() == static_cast<float>(group.size()), "the sum");
}

class Faults : public FaultTest {};

// A thread cannot be killed or stopped alone.
class FaultsOfProcesses : public Faults {};

TEST_P(FaultsOfProcesses, KilledRankIsSeenAtOnce) {
  for (int victim : {0, 2}) {
    auto results = run_ranks(job(3), [victim](Communicator& communicator) {
      for (int step = 0;; ++step) {
        if (step == 5 && communicator.rank() == victim) ::raise(SIGKILL);
        sum(communicator, communicator.world(), "gradients of layers.3");
      }
    });
    EXPECT_EQ(results[static_cast<size_t>(victim)].signal, SIGKILL);
    expect_all_say(results, victim,
                   "gradients of layers.3 (all_reduce in group world, ranks 0, 1, 2): ");
    expect_all_say(results, victim, cat("rank ", victim, " was lost"));
    for (const RankResult& result : results) {
      // The deadline is fifty seconds.
      EXPECT_LT(result.seconds - results[static_cast<size_t>(victim)].seconds, 30);
    }
  }
}

TEST_P(FaultsOfProcesses, StoppedRankIsSeenAtTheDeadline) {
  auto results = run_ranks(job(3, milliseconds(3000)), [](Communicator& communicator) {
    sum_of_ones(communicator, "start");
    if (communicator.rank() == 1) ::raise(SIGSTOP);
    sum(communicator, communicator.world(), "loss");
  });
  EXPECT_EQ(results[1].signal, SIGSTOP);
  expect_all_say(results, 1, "rank 1 did not answer rank ");
  expect_all_say(results, 1, " within 3 s");
  expect_all_say(results, 1, "loss (all_reduce in group world");
}

TEST_P(FaultsOfProcesses, ARankThatCannotWatchItsConnectionsIsNamedAtOnce) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer takes descriptors to look at an exception";
  auto results = run_ranks(job(3), [](Communicator& communicator) {
    sum(communicator, communicator.world(), "start");
    if (communicator.rank() == 1) limit_open_files(2);
    for (;;) sum(communicator, communicator.world(), "loss");
  });
  expect_all_say(results, -1, "rank 1 cannot watch its connections: Invalid argument");
}

TEST_P(Faults, ReportedFailureReachesRanksInOtherGroups) {
  MeetingPoint start(4);
  const MeetingPoint failed(1);
  auto results = run_ranks(job(4), [&](Channels& channels) {
    Communicator& communicator = *channels.communicator;
    int r = communicator.rank();
    const CommGroup& pair = communicator.make_group({r / 2 * 2, r / 2 * 2 + 1}, "pair");
    start.arrive_and_wait();
    if (r == 2) {
      // By then rank 0 is in its call.
      std::this_thread::sleep_for(milliseconds(150));
      channels.control->report_failure("the disk is full");
      // Whoever reports a failure sees it himself in the next call.
      sum_of_ones(communicator, "end");
    }
    // Rank 0 waits for rank 1, which has other things to do.
    if (r == 1) failed.wait();
    std::optional<ArrivesAtEnd> tell;
    if (r == 0) tell.emplace(failed);
    sum(communicator, pair, "in pairs");
    sum_of_ones(communicator, "end");
  });
  expect_all_say(results, -1, "rank 2 failed: the disk is full");
  EXPECT_TRUE(contains(results[0].error, "in pairs (all_reduce in group pair, ranks 0, 1)"));
  EXPECT_LT(results[0].seconds, 30);
}

// Rank 3 is the first whose deadline is over: it waits for rank 1, which waits for rank 0.
TEST_P(Faults, TheRankAtTheEndOfAChainOfWaitsIsNamed) {
  const MeetingPoint given_up(3);
  auto results = run_ranks(job(4, milliseconds(3000)), [&](Communicator& communicator) {
    int r = communicator.rank();
    const CommGroup& row = communicator.make_group({r / 2 * 2, r / 2 * 2 + 1}, "row");
    const CommGroup& column = communicator.make_group({r % 2, r % 2 + 2}, "column");
    sum_of_ones(communicator, "start");
    if (r == 0) given_up.wait();
    const ArrivesAtEnd tell(given_up);
    if (r == 1) std::this_thread::sleep_for(milliseconds(100));
    if (r == 1) sum(communicator, row, "in rows");
    sum(communicator, column, "in columns");
    sum_of_ones(communicator, "end");  // rank 0 may come so far before it knows of the others
  });
  expect_all_say(results, -1, "rank 0 did not answer rank ");
  EXPECT_TRUE(contains(results[1].error, "in rows (")) << results[1].error;
  EXPECT_TRUE(contains(results[3].error, "in columns (")) << results[3].error;
}

TEST_P(Faults, EveryCallAfterAFailureSaysTheSame) {
  auto results = run_ranks(job(2), [](Channels& channels) {
    Communicator& communicator = *channels.communicator;
    std::string first;
    // The failure may overtake the end of the first call.
    for (const char* label : {"first", "second", "third"}) {
      try {
        sum_of_ones(communicator, label);
        require(first.empty() && label == std::string("first"), "the call went through");
        if (communicator.rank() == 0) channels.control->report_failure("no reason");
      } catch (const CommError& error) {
        if (first.empty()) first = error.what();
        require(!communicator.unfinished_call().empty(), "the call that failed is no longer told");
        require(first == error.what(), error.what());
      }
    }
    require(contains(first, "rank 0 failed: no reason"), first);
  });
  for (const RankResult& result : results) EXPECT_EQ(result.error, "");
}

TEST_P(Faults, RankThatLeavesEarlyIsNamed) {
  MeetingPoint start(3);
  auto results = run_ranks(job(3), [&](Communicator& communicator) {
    start.arrive_and_wait();
    if (communicator.rank() != 1) sum_of_ones(communicator, "end");
  });
  EXPECT_EQ(results[1].error, "");
  expect_all_say(results, 1, "end (all_reduce in group world");
  expect_all_say(results, 1, "rank 1 has left the job");
}

TEST_P(Faults, RankThatThrowsInTheMiddleOfACallEndsTheOthers) {
  int32_t ones[2] = {1, 1}, sums[2] = {};  // longer there than the call of a rank that throws
  auto results = run_ranks(job(2), [&](Channels& channels) {
    Communicator& communicator = *channels.communicator;
    const int rank = communicator.rank();
    CommCall call{.action = CommAction::kAllReduce,
                  .group = &communicator.world(),
                  .dtype = DType::kI32,
                  .output_dtype = DType::kI32,
                  .inner = 1,
                  .input = &ones[rank],
                  .output = &sums[rank],
                  .label = "step"};
    if (rank == 0) {
      communicator.start(call);
      std::this_thread::sleep_for(milliseconds(50));
      throw std::runtime_error("something else");
    }
    // It comes to that call too late.
    try {
      channels.control->barrier("end");
      require(false, "the call went through");
    } catch (const CommError&) {
    }
    communicator.run(call);
    sum_of_ones(communicator, "end");
  });
  EXPECT_EQ(results[0].error, "something else");
  EXPECT_TRUE(contains(results[1].error, "rank 0 failed: it ended in the middle of a call"))
      << results[1].error;
  EXPECT_LT(results[0].seconds, 30);
}

// Ranks whose programs have taken different ways: the first call in which a pair differs says so.
struct Step {
  std::string_view label;
  CommAction action = CommAction::kAllReduce;
  int64_t inner = 5000;
  bool in_pair = false;  // of ranks 0, 1 and 2, 3
};

void do_step(Communicator& communicator, const CommGroup& pair, const Step& step) {
  constexpr size_t kMost = 100'000;
  std::vector<float> input(kMost, 1.f), output(kMost);
  communicator.run({.action = step.action,
                    .group = step.in_pair ? &pair : &communicator.world(),
                    .inner = step.inner,
                    .input = input.data(),
                    .output = output.data(),
                    .label = step.label});
}

TEST_P(Faults, RanksOutOfStepStopAtOnceAndNameBothCalls) {
  Step usual{"gradients of layers.3"};
  Step size = usual, other_group = usual;
  size.inner = 6000;
  other_group.in_pair = true;
  // Rank 1 does as the first says, the others as the second.
  const std::pair<Step, Step> cases[]{{{"gradients of layers.2"}, usual},
                                      {{usual.label, CommAction::kAllGather}, usual},
                                      {size, usual},
                                      {other_group, usual}};
  for (const auto& [odd, even] : cases) {
    auto results = run_ranks(job(4), [&](Communicator& communicator) {
      int r = communicator.rank();
      const CommGroup& pair = communicator.make_group({r / 2 * 2, r / 2 * 2 + 1}, "pair");
      sum_of_ones(communicator, "start");
      do_step(communicator, pair, r == 1 ? odd : even);
      sum_of_ones(communicator, "end");
    });
    auto words = [](const Step& step) {
      return cat("'", step.label, "' (", name(step.action), " of 1 x ", step.inner,
                 " f32 in group ", step.in_pair ? "pair" : "world", ")");
    };
    expect_all_say(results, -1, "are out of step: rank ");
    expect_all_say(results, -1, cat("rank 1 is in ", words(odd)));
    expect_all_say(results, -1, words(even));
    for (const RankResult& result : results) EXPECT_LT(result.seconds, 30);
  }
}

std::string test_name(const testing::TestParamInfo<Way>& info) { return name(info.param); }
const auto kProcesses = testing::Values(Way::kSharedMemory, Way::kGloo, Way::kMix);
INSTANTIATE_TEST_SUITE_P(Threads, Faults, testing::Values(Way::kThreads), test_name);
INSTANTIATE_TEST_SUITE_P(Processes, Faults, kProcesses, test_name);
INSTANTIATE_TEST_SUITE_P(Processes, FaultsOfProcesses, kProcesses, test_name);

// All ranks at once, as by Ctrl-Z: time in which nothing could run is nobody's fault.
TEST(StoppedJob, GoesOnHoweverLongItWasStopped) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not follow forked processes";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    RankJob job;
    job.deadline = milliseconds(4000);
    // Rank 0 waits, and the process is stopped meanwhile.
    auto wait_in = [&](int rank, const auto& call) {
      if (rank == 0)
        (void)!::write(ends[1], "x", 1);
      else
        std::this_thread::sleep_for(milliseconds(500));
      call();
    };
    const auto results = run_ranks(job, [&](Channels& channels) {
      const int rank = channels.control->rank();
      wait_in(rank, [&] { sum_of_ones(*channels.communicator, "loss"); });
      wait_in(rank, [&] { channels.control->any("stop", false); });
    });
    for (const RankResult& result : results)
      if (!result.error.empty()) std::fprintf(stderr, "%s\n", result.error.c_str());
    ::_exit(std::ranges::all_of(results, [](auto& r) { return r.error.empty(); }) ? 0 : 1);
  }
  ::close(ends[1]);
  for (char byte; ::read(ends[0], &byte, 1) == 1;) {
    std::this_thread::sleep_for(milliseconds(200));
    ::kill(child, SIGSTOP);
    std::this_thread::sleep_for(milliseconds(4500));
    ::kill(child, SIGCONT);
  }
  ::close(ends[0]);
  EXPECT_EQ(wait_for_end(child, "the job"), 0);
}

}  // namespace
}  // namespace tessera
