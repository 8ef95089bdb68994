// What calls of the control plane see when a rank dies, stops, fails, leaves or does something
// else.
#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "tests/comm/fault_fixture.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

class ControlFaults : public FaultTest {};
// A thread cannot be killed or stopped alone.
class ControlFaultsOfProcesses : public ControlFaults {};

// Several threads wait, each in its own call, and one for a tensor.
TEST_P(ControlFaultsOfProcesses, KilledRankEndsTheCallsOfAllThreads) {
  for (int victim : {0, 2}) {
    MeetingPoint start(3);
    auto results = run_ranks(job(3), [&](Channels& channels) {
      Control& control = *channels.control;
      start.arrive_and_wait();
      if (control.rank() == victim) ::raise(SIGKILL);
      std::string errors[3];
      auto note = [](std::string& error, const std::function<void()>& call) {
        try {
          call();
        } catch (const CommError& caught) {
          error = cat(caught.what(), "\n");
        }
      };
      std::thread first([&] { note(errors[0], [&] { control.exchange("checkpoint", "text"); }); });
      std::thread second([&] { note(errors[1], [&] { control.barrier("memory"); }); });
      note(errors[2], [&] { sum_of_ones(*channels.communicator, "loss"); });
      first.join();
      second.join();
      throw CommError(errors[0] + errors[1] + errors[2]);
    });
    EXPECT_EQ(results[static_cast<size_t>(victim)].signal, SIGKILL);
    std::string lost = cat("): rank ", victim, " was lost: its process has ended\n");
    expect_all_say(results, victim, cat("checkpoint (exchange of all ranks", lost));
    expect_all_say(results, victim, cat("memory (barrier of all ranks", lost));
    expect_all_say(results, victim, cat("loss (all_reduce in group world, ranks 0, 1, 2", lost));
    for (const RankResult& result : results) {
      // The deadline is fifty seconds.
      EXPECT_LT(result.seconds - results[static_cast<size_t>(victim)].seconds, 30);
    }
  }
}

// It takes no bytes either: what the others have for it stays with them.
TEST_P(ControlFaultsOfProcesses, StoppedRankIsSeenAtTheDeadline) {
  MeetingPoint start(3);
  auto results = run_ranks(job(3, milliseconds(2000)), [&](Channels& channels) {
    Control& control = *channels.control;
    start.arrive_and_wait();
    if (control.rank() == 1) ::raise(SIGSTOP);
    control.exchange("manifest", std::string(20'000'000, 'x'));
  });
  EXPECT_EQ(results[1].signal, SIGSTOP);
  expect_all_say(results, 1, "manifest (exchange of all ranks): rank 1 did not answer rank ");
  expect_all_say(results, 1, " within 2 s");
  for (size_t rank : {0, 2}) EXPECT_LT(results[rank].seconds, 30);
}

TEST_P(ControlFaults, RankThatDoesSomethingElseIsNamedAtTheDeadline) {
  const MeetingPoint start(2), given_up(1);
  auto results = run_ranks(job(2, milliseconds(3000)), [&](Channels& channels) {
    Control& control = *channels.control;
    start.arrive_and_wait();
    if (control.rank() == 1) given_up.wait();
    const ArrivesAtEnd tell(given_up);
    // Rank 1 has what rank 0 said, and may be through before it knows that rank 0 gave up.
    control.any("stop", false);
    control.barrier("end");
  });
  EXPECT_EQ(results[0].error, "stop (any of all ranks): rank 1 did not answer rank 0 within 3 s");
  EXPECT_TRUE(contains(results[1].error, "rank 1 did not answer rank 0 within 3 s"))
      << results[1].error;
}

// Ranks 0 and 2 wait for rank 1, which waits for rank 3 in another call.
TEST_P(ControlFaults, TheRankAtTheEndOfAChainOfWaitsIsNamed) {
  const MeetingPoint start(4), given_up(3);
  auto results = run_ranks(job(4, milliseconds(3000)), [&](Channels& channels) {
    Communicator& communicator = *channels.communicator;
    int r = communicator.rank();
    const CommGroup& pair = communicator.make_group({r % 2, r % 2 + 2}, "pair");
    start.arrive_and_wait();
    if (r == 3) given_up.wait();
    const ArrivesAtEnd tell(given_up);
    if (r == 1) {
      std::this_thread::sleep_for(milliseconds(100));
      float one = 1, sum = 0;
      communicator.run({.action = CommAction::kAllReduce,
                        .group = &pair,
                        .dtype = DType::kF32,
                        .output_dtype = DType::kF32,
                        .inner = 1,
                        .input = &one,
                        .output = &sum,
                        .label = "in pairs"});
    }
    channels.control->barrier("checkpoint");
  });
  expect_all_say(results, -1, "rank 3 did not answer rank 1 within 3 s");
  EXPECT_TRUE(contains(results[0].error, "checkpoint (barrier of all ranks): "));
}

// Neither is out of step for all that can be known: another thread might make the call yet. Whose
// deadline is over first blames the other.
TEST_P(ControlFaults, RanksThatWaitForEachOtherSayInWhat) {
  MeetingPoint start(2);
  auto results = run_ranks(job(2, milliseconds(2500)), [&](Channels& channels) {
    start.arrive_and_wait();
    if (channels.control->rank() == 0) {
      channels.control->exchange("checkpoint", "text");
    } else {
      std::this_thread::sleep_for(milliseconds(200));
      sum_of_ones(*channels.communicator, "loss");
    }
  });
  const int blamed = contains(results[0].error, "rank 1 did not answer") ? 1 : 0;
  const int other = 1 - blamed;
  const std::string_view call = blamed == 1 ? "'loss' (all_reduce of 1 x 1 i32 in group world)"
                                            : "'checkpoint' (exchange of all ranks)";
  expect_all_say(results, -1,
                 cat("rank ", blamed, " did not answer rank ", other,
                     " within 2.5 s: it waits for rank ", other, " in ", call));
  EXPECT_TRUE(results[0].error.starts_with("checkpoint (exchange of all ranks): "));
  EXPECT_TRUE(results[1].error.starts_with("loss (all_reduce in group world, ranks 0, 1): "));
}

TEST_P(ControlFaults, DifferentCallsWithOneTagStopAtOnceAndAreNamed) {
  auto results = run_ranks(job(3), [](Channels& channels) {
    Control& control = *channels.control;
    if (control.rank() == 1)
      control.exchange("save", "text");
    else
      control.barrier("save");
    control.barrier("end");
  });
  expect_all_say(results, -1, " are out of step: rank ");
  expect_all_say(results, -1, "rank 1 is in 'save' (exchange of all ranks)");
  expect_all_say(results, -1, " is in 'save' (barrier of all ranks)");
  for (const RankResult& result : results) EXPECT_LT(result.seconds, 30);
}

TEST_P(ControlFaults, RankThatLeavesEarlyIsNamed) {
  MeetingPoint start(3);
  auto results = run_ranks(job(3), [&](Channels& channels) {
    start.arrive_and_wait();
    if (channels.control->rank() != 1) channels.control->barrier("end");
  });
  EXPECT_EQ(results[1].error, "");
  expect_all_say(results, 1, "end (barrier of all ranks): rank 1 has left the job");
  for (const RankResult& result : results) EXPECT_LT(result.seconds, 30);
}

// What it said before it left counts: rank 0 has the texts of the others and goes at once, with
// more to send than sockets hold.
TEST_P(ControlFaults, LastWordsAreHeard) {
  auto results = run_ranks(job(3), [](Channels& channels) {
    if (channels.control->rank() == 0) std::this_thread::sleep_for(milliseconds(300));
    auto all = channels.control->exchange("end", std::string(3'000'000, 'x'));
    for (const std::string& text : all) require(text.size() == 3'000'000, "a text");
  });
  for (const RankResult& result : results) EXPECT_EQ(result.error, "");
}

TEST_P(ControlFaults, ReportedFailureEndsEveryCall) {
  MeetingPoint start(3);
  auto results = run_ranks(job(3), [&](Channels& channels) {
    Control& control = *channels.control;
    start.arrive_and_wait();
    if (control.rank() == 2) control.report_failure("the disk is full");
    for (const char* tag : {"first", "second"}) {
      try {
        control.exchange(tag, "");
        require(false, "the call went through");
      } catch (const CommError& error) {
        std::string expected =
            cat(tag, " (exchange of all ranks): rank 2 failed: the disk is full");
        require(error.what() == expected, error.what());
      }
    }
    sum_of_ones(*channels.communicator, "loss");
  });
  expect_all_say(results, -1, "loss (all_reduce in group world, ranks 0, 1, 2): rank 2 failed: ");
  for (const RankResult& result : results) EXPECT_LT(result.seconds, 30);
}

TEST_P(ControlFaults, OneThreadAtATimeUsesATag) {
  // The first of the two threads waits there until rank 1 comes, which the second lets in.
  const MeetingPoint refused(1);
  auto results = run_ranks(job(2), [&](Channels& channels) {
    Control& control = *channels.control;
    if (control.rank() == 1) {
      refused.wait();
      return control.barrier("tag");
    }
    std::string messages[2];
    const auto call = [&](std::string& message) {
      try {
        control.barrier("tag");
      } catch (const InternalError& error) {
        message = error.what();
        refused.arrive();
      } catch (const CommError& error) {
        message = cat("an error of the job: ", error.what());
      }
    };
    {
      const std::jthread other([&] { call(messages[1]); });
      call(messages[0]);
    }
    const std::string& message = messages[messages[0].empty() ? 1 : 0];
    require(messages[0].empty() || messages[1].empty(), messages[0] + messages[1]);
    require(contains(message, "two threads use the tag 'tag' at once"), message);
  });
  for (const RankResult& result : results) EXPECT_EQ(result.error, "");
}

// Nothing that a rank with another token says is heard: it does not come in.
TEST_P(ControlFaultsOfProcesses, RankWithAnotherTokenIsNotLetIn) {
  RankJob wrong = job(2, milliseconds(20'000));
  wrong.prepare = [](JobMember& member) {
    if (member.rank == 1) member.token = "guessed";
  };
  auto results = run_ranks(wrong, [](Channels& channels) { channels.control->barrier("start"); });
  EXPECT_TRUE(
      contains(results[1].error, "rank 1 cannot connect to rank 0: it has another job token"))
      << results[1].error;
  EXPECT_TRUE(contains(results[0].error, "rank 1 ")) << results[0].error;
  EXPECT_FALSE(contains(results[0].error, "start (")) << results[0].error;
}

std::string test_name(const testing::TestParamInfo<Way>& info) { return name(info.param); }
const auto kProcesses = testing::Values(Way::kSharedMemory, Way::kGloo, Way::kMix);
INSTANTIATE_TEST_SUITE_P(Threads, ControlFaults, testing::Values(Way::kThreads), test_name);
INSTANTIATE_TEST_SUITE_P(Processes, ControlFaults, kProcesses, test_name);
INSTANTIATE_TEST_SUITE_P(Processes, ControlFaultsOfProcesses, kProcesses, test_name);

}  // namespace
}  // namespace tessera
