#include "options/injected_fault.h"

#include <gtest/gtest.h>

#include "tests/base/error_expectation.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using Action = InjectedFault::Action;
using What = InjectedFault::What;

TEST(InjectedFault, EveryPartIsRead) {
  const InjectedFault kill = parse_injected_fault("kill@rank=1,step=5");
  EXPECT_EQ(kill.action, Action::kKill);
  EXPECT_EQ(kill.rank, 1);
  EXPECT_EQ(kill.step, 5);
  EXPECT_EQ(kill.after, std::nullopt);
  EXPECT_EQ(kill.attempt, 0);
  EXPECT_EQ(kill.text, "kill@rank=1,step=5");

  const InjectedFault slow = parse_injected_fault("slow@after=3,steps=20,seconds=0.25,attempt=any");
  EXPECT_EQ(slow.action, Action::kSlow);
  EXPECT_EQ(slow.rank, 0);
  EXPECT_EQ(slow.step, std::nullopt);
  EXPECT_EQ(slow.after, 3);
  EXPECT_EQ(slow.steps, 20);
  EXPECT_EQ(slow.seconds, 0.25);
  EXPECT_EQ(slow.attempt, std::nullopt);

  EXPECT_EQ(parse_injected_fault("stall@step=0").seconds, std::nullopt);
  EXPECT_EQ(parse_injected_fault("stall@step=0,seconds=30").seconds, 30);
  EXPECT_EQ(parse_injected_fault("drop@step=7,attempt=2").attempt, 2);
  EXPECT_EQ(parse_injected_fault("nan@step=7").action, Action::kNan);
  EXPECT_EQ(parse_injected_fault("corrupt@step=7").what, What::kGradient);
  EXPECT_EQ(parse_injected_fault("corrupt@step=7,what=weights").what, What::kWeights);
  EXPECT_EQ(parse_injected_fault("corrupt@step=7,what=checkpoint").what, What::kCheckpoint);
}

TEST(InjectedFault, MistakesAreNamed) {
  auto message = [](const std::string& text) {
    return message_of<UsageError>([&] { parse_injected_fault(text); });
  };
  EXPECT_EQ(message("kil@step=5"),
            "--inject 'kil@step=5' has 'kil', which is no fault: give kill, stall, slow, corrupt, "
            "drop, nan");
  expect_contains(message(""), "has '', which is no fault");
  expect_contains(message("kill"), "has no @step=N");
  expect_contains(message("kill@rank=1"), "needs step=N");
  expect_contains(message("kill@step=1,after=2"), "needs step=N");
  expect_contains(message("kill@step=five"), "has 'step=five', which is no count");
  expect_contains(message("kill@step=-1"), "has 'step=-1', which is no count");
  expect_contains(message("kill@step=99999999999999999999"), "which is no count");
  expect_contains(message("kill@step=1,"), "has '': kill takes rank=, step=, after=, attempt=");
  expect_contains(message("kill@step=1,seconds=2"), "has 'seconds=2': kill takes");
  expect_contains(message("stall@step=1,seconds=nan"), "has 'seconds=nan', which is no time");
  expect_contains(message("stall@step=1,seconds=0"), "which is no time");
  expect_contains(message("stall@step=1,steps=2"), "has 'steps=2'");
  expect_contains(message("slow@step=1"), "needs seconds=S");
  expect_contains(message("corrupt@step=1,what=disk"),
                  "has 'disk', which is no thing to corrupt: give gradient, weights, checkpoint");
}

TEST(InjectedFault, TheCommandLineIsCheckedAtOnce) {
  expect_contains(option_testing::usage_error({"--inject", "kill@step=5", "crash@step=5"}),
                  "--inject 'crash@step=5' has 'crash'");
  expect_contains(option_testing::usage_error({"--loss_spike_policy", "rewind"}),
                  "--loss_spike_policy rewind needs --checkpoint_dir");
  option_testing::parse({"--loss_spike_policy", "rewind", "--eval_only"},
                        OptionScope::kTrain);  // which has none
}

}  // namespace
}  // namespace tessera
