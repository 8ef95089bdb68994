// The parts that watch a run: the watchdog, stragglers, faults of --inject.
#include <atomic>
#include <bit>
#include <thread>

#include "checkpoint/directory.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

struct Barks {
  std::atomic<int> times = 0;
  int number = 0;  // among those of all
  std::string text;
  std::function<void(const std::string&)> take() {
    return [this](const std::string& what) {
      static std::atomic<int> all = 0;
      text = what;
      number = ++all;
      ++times;
    };
  }
  bool within(std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (times == 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
    return times > 0;
  }
};

Watchdog::Place alone() { return {"step 17, waiting for data"}; }

TEST(Watchdog, SaysWhichStepIsNotDone) {
  Barks barks;
  Watchdog dog({.first_step = std::nullopt, .step = 0.2}, alone, barks.take());
  dog.watch(true);
  EXPECT_FALSE(barks.within(500ms)) << "the first step has no limit";
  dog.step_done();
  EXPECT_TRUE(barks.within(60s));
  EXPECT_EQ(barks.text, "no step was done for 0.2 s (--step_timeout): step 17, waiting for data");
}

TEST(Watchdog, TheFirstStepHasALimitOfItsOwn) {
  Barks barks;
  Watchdog dog({.first_step = 0.2, .step = 100}, alone, barks.take());
  EXPECT_FALSE(barks.within(400ms)) << "nothing is watched yet";
  dog.watch(true);
  EXPECT_TRUE(barks.within(60s));
  expect_contains(barks.text, "0.2 s (--first_step_timeout)");
}

TEST(Watchdog, StepsAndPausesKeepItQuiet) {
  // Longer than a machine with other things to do keeps this thread from a step.
  const Watchdog::Limits limits{.first_step = 3, .step = 3};
  Barks by_steps, by_pauses;
  Watchdog steps(limits, alone, by_steps.take()), pauses(limits, alone, by_pauses.take());
  for (Watchdog* dog : {&steps, &pauses}) {
    dog->watch(true);
    dog->step_done();
  }
  pauses.watch(false);
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(40ms);
    steps.step_done();
  }
  EXPECT_EQ(by_steps.times, 0);
  EXPECT_EQ(by_pauses.times, 0);
}

// All ranks wait for one that is stuck: that one speaks first.
TEST(Watchdog, WhoWaitsForOthersIsLater) {
  Barks stuck, waits;
  Watchdog first({.step = 4}, alone, stuck.take());
  Watchdog second(
      {.step = 4},
      [] {
        return Watchdog::Place{"in all_gather", true};
      },
      waits.take());
  for (Watchdog* dog : {&second, &first}) {
    dog->watch(true);
    dog->step_done();
  }
  ASSERT_TRUE(stuck.within(60s));
  ASSERT_TRUE(waits.within(60s));
  EXPECT_LT(stuck.number, waits.number);
}

const std::vector<std::string> kHosts{"a", "a", "b", "b"};

PhaseSeconds phases(double compute, double data, double save) {
  return {.compute = compute, .data = data, .save = save, .steps = 10, .step_seconds = 20};
}

TEST(Stragglers, WhoIsSlowInWhichPhaseByHowMuch) {
  std::vector<PhaseSeconds> ranks(4, phases(10, 1, 0));
  ranks[2] = phases(16, 1, 0);
  auto slow = slowest_rank(ranks, kHosts, 1.5);
  ASSERT_TRUE(slow);
  EXPECT_TRUE(slow->is_straggler);
  EXPECT_EQ(slow->rank, 2);
  EXPECT_EQ(slow->host, "b");
  EXPECT_EQ(slow->phase, "compute");
  EXPECT_DOUBLE_EQ(slow->seconds, 1.6);
  EXPECT_DOUBLE_EQ(slow->median_seconds, 1.0);
  EXPECT_FALSE(slowest_rank(ranks, kHosts, 1.7)->is_straggler);

  // What is least of all in one phase stands out where nobody else waits.
  ranks[1].save = 9;
  slow = slowest_rank(ranks, kHosts, 1.5);
  EXPECT_EQ(slow->rank, 1);
  EXPECT_EQ(slow->phase, "save");
  EXPECT_TRUE(slow->is_straggler);
}

TEST(Stragglers, OfTwoRanksTheOtherIsTheMeasure) {
  auto slow = slowest_rank({phases(10, 0, 0), phases(16, 0, 0)}, {"a", "b"}, 1.5);
  EXPECT_EQ(slow->rank, 1);
  EXPECT_TRUE(slow->is_straggler);
}

TEST(Stragglers, LittleTimesAndOneRankAreNone) {
  // Ten times as long, and nobody minds.
  auto slow = slowest_rank({phases(10, 0.01, 0), phases(10, 0.1, 0)}, {"a", "b"}, 1.5);
  EXPECT_EQ(slow->phase, "data");
  EXPECT_FALSE(slow->is_straggler);
  // Of steps of a millisecond, some microseconds are a share that would count.
  const PhaseSeconds quick{.compute = 0.01, .data = 4e-4, .steps = 10, .step_seconds = 0.012};
  PhaseSeconds late = quick;
  late.data = 2e-3;
  slow = slowest_rank({quick, late}, {"a", "b"}, 1.5);
  EXPECT_EQ(slow->rank, 1);
  EXPECT_FALSE(slow->is_straggler);
  late.data = 0.02;
  EXPECT_TRUE(slowest_rank({quick, late}, {"a", "b"}, 1.5)->is_straggler);
  EXPECT_FALSE(slowest_rank({phases(1, 1, 1)}, {"a"}, 1.5));
  EXPECT_FALSE(slowest_rank({PhaseSeconds(), PhaseSeconds()}, {"a", "b"}, 1.5));
}

class InjectedFaults : public TrainingTest {
 protected:
  RunConfig quick(int64_t steps, const std::string& fault) {
    RunConfig config = options(steps);
    config.run_validation = false;
    config.inject = {fault};
    return config;
  }
};

TEST_F(InjectedFaults, ANanInTheGradientIsSkippedOnce) {
  RunConfig config = quick(6, "nan@step=3");
  config.save_ckpt = false;
  const RunTrace trace = train(config);
  EXPECT_EQ(trace.ok, (std::vector<bool>{true, true, true, false, true, true}));
  expect_contains(trace.log, "--inject nan@step=3: now, at step 3");
  // Nothing else is different from a run whose update was left out.
  EXPECT_NE(trace.losses[3], "null");
  EXPECT_EQ(trace.norms[3], "null");
}

TEST_F(InjectedFaults, OtherAttemptsAndRanksHaveTheirOwn) {
  RunConfig config = quick(4, "nan@step=2,attempt=1");
  config.save_ckpt = false;
  EXPECT_EQ(train(config).ok, std::vector<bool>(4, true));
  set_job("", 1);
  EXPECT_EQ(train(config).ok, (std::vector<bool>{true, true, false, true}));
  config.inject = {"nan@after=1,attempt=any"};
  EXPECT_EQ(train(config).ok, (std::vector<bool>{true, false, true, true}));
  config.inject = {"nan@step=1,rank=1"};
  expect_contains(message_of<UsageError>([&] { train(config); }),
                  "--inject nan@step=1,rank=1 is meant for rank 1: there is 1 rank, 0");
}

TEST_F(InjectedFaults, ACorruptGradientIsSeenInTheNorm) {
  RunConfig config = quick(4, "corrupt@step=2");
  config.save_ckpt = false;
  const RunTrace good = train(quick(4, "nan@step=99")), bad = train(config);
  EXPECT_EQ(bad.losses[2], good.losses[2]);
  EXPECT_NE(bad.norms[2], good.norms[2]);
}

TEST_F(InjectedFaults, CorruptWeightsAreSeenInTheLoss) {
  RunConfig config = quick(4, "corrupt@step=2,what=weights");
  config.save_ckpt = false;
  const RunTrace good = train(quick(4, "nan@step=99")), bad = train(config);
  EXPECT_EQ(bad.losses[1], good.losses[1]);
  EXPECT_NE(std::pair(bad.losses[2], bad.norms[2]), std::pair(good.losses[2], good.norms[2]));
}

TEST_F(InjectedFaults, ACorruptCheckpointIsPassedOver) {
  RunConfig config = quick(6, "corrupt@step=4,what=checkpoint");
  config.checkpoint_freq = {"2"};
  const RunTrace straight = train(config);
  std::filesystem::remove_all(path("ckpt/llama_v2-6steps"));
  config.inject.clear();
  config.resume_from_checkpoint = config.checkpoint_dir;
  const RunTrace again = train(config);
  expect_contains(again.log, "llama_v2-4steps' on all ranks");
  expect_contains(again.log, "Checkpoint loaded from " + path("ckpt/llama_v2-2steps"));
  EXPECT_EQ(again.fingerprint, straight.fingerprint);
}

TEST_F(InjectedFaults, SlowStepsAreSlow) {
  RunConfig config = quick(5, "slow@step=1,steps=2,seconds=0.2");
  config.save_ckpt = false;
  train(config);
  std::vector<bool> slow;
  const std::string metrics = read_file(path("metrics"));
  for (std::string_view line : split(metrics, '\n'))
    if (!line.empty())
      slow.push_back(nlohmann::json::parse(line).at("step_seconds").get<double>() >= 0.2);
  EXPECT_FALSE(slow[0]);
  EXPECT_TRUE(slow[1]);
  EXPECT_TRUE(slow[2]);
}

}  // namespace
}  // namespace tessera
