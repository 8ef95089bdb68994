// Runs with updates that are not finite: skipped, counted, the end after too many.
#include <limits>

#include "checkpoint/checkpoint.h"
#include "data/sample_order.h"
#include "tests/checkpoint/save_boxes.h"
#include "tests/checkpoint/whole_state.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

// A run whose embedding has a NaN in the row of the byte 'Z', which only chosen windows hold.
class Poisoned : public TrainingTest {
 protected:
  // Puts a Z into the windows of these steps (one window a step) and leaves a checkpoint of step 0
  // with the bad row.
  RunConfig poisoned_options(const std::set<int64_t>& bad_steps) {
    RunConfig config = options(0);
    config.train_batch_size = 1;
    config.run_validation = false;
    config.validation_fraction = 0;
    std::string text = made_up_text(100);
    auto windows = static_cast<int64_t>((text.size() + 1 - 2) / 16 + 1);
    SampleOrder order(static_cast<uint64_t>(config.seed), windows, true);
    for (int64_t step : bad_steps) {
      text[static_cast<size_t>(order.at(step).window) * 16 + 3] = 'Z';
    }
    write("text.txt", text);
    std::filesystem::remove_all(path("ckpt"));
    train(config);
    poison();
    config.resume_from_checkpoint = config.checkpoint_dir;
    return config;
  }

  void poison() {
    std::filesystem::path saved = path("ckpt/llama_v2-0steps");
    CheckpointReader reader(saved);
    WholeState state(reader);
    auto* table = reinterpret_cast<float*>(state.content("model.embed_tokens.weight").data());
    table['Z' * 32 + 1] = std::numeric_limits<float>::quiet_NaN();
    save_boxes(path("ckpt"), "llama_v2", 0, state.boxes(), reader.run_json(), {}, reader.origin());
  }
};

std::string flags(const std::vector<bool>& ok) {
  std::string text;
  for (bool b : ok) text += b ? '.' : 'x';
  return text;
}

TEST_F(Poisoned, BadUpdatesAreSkippedAndReported) {
  for (bool bf16 : {false, true}) {
    RunConfig config = poisoned_options({2, 3, 6});
    config.bf16 = bf16;
    config.max_steps = 8;
    config.save_ckpt = false;
    RunTrace trace = train(config);
    EXPECT_EQ(flags(trace.ok), "..xx..x.");
    EXPECT_EQ(trace.losses[2], "null");
    std::vector<std::string> warnings = lines_with(trace.log, "not finite");
    ASSERT_EQ(warnings.size(), 3u);
    EXPECT_EQ(warnings[0],
              "Step 2: loss or gradient norm is not finite; the update was skipped (1 in a row). "
              "First non-finite value: embedding in embed (forward)");
    expect_contains(warnings[1], "Step 3: ");
    expect_contains(warnings[1], "(2 in a row)");
    expect_contains(warnings[2], "Step 6: ");
    expect_contains(warnings[2], "(1 in a row)");
    EXPECT_EQ(lines_with(trace.log, ", skipped").size(), 3u);
  }
}

TEST_F(Poisoned, TooManyInARowStopTheRunAndNameTheLastGoodCheckpoint) {
  RunConfig config = poisoned_options({3, 4});
  config.max_steps = 8;
  config.checkpoint_freq = {"2"};
  config.max_skipped_steps = 1;
  std::string message = failure(config);
  EXPECT_EQ(flags(failed().ok), "...xx");
  expect_contains(
      message,
      "stopped at step 4: 2 updates in a row were not finite, more than --max_skipped_steps 1");
  expect_contains(message, "in embed (forward)");
  expect_contains(message, "the last good checkpoint is " + path("ckpt/llama_v2-2steps"));
  // The checkpoint of step 4 was written between the two bad steps: it counts one of them.
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"llama_v2-0steps", "llama_v2-2steps", "llama_v2-4steps"}));

  RunTrace tolerant;
  config.max_skipped_steps = 2;
  config.resume_from_checkpoint = {path("ckpt/llama_v2-2steps")};
  std::filesystem::remove_all(path("ckpt/llama_v2-4steps"));
  tolerant = train(config);
  EXPECT_EQ(flags(tolerant.ok), ".xx...");
}

TEST_F(Poisoned, TheCountSurvivesAResume) {
  RunConfig config = poisoned_options({3, 4});
  config.max_skipped_steps = 1;
  config.checkpoint_freq = {"2"};
  config.num_kept_checkpoints = {"1"};
  config.max_steps = 4;  // ends behind the first bad step
  RunTrace first = train(config);
  EXPECT_EQ(flags(first.ok), "...x");
  // Only one is kept, but not while updates are skipped: the good one is still needed.
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"llama_v2-2steps", "llama_v2-4steps"}));
  config.max_steps = 8;
  std::string message = failure(config);
  EXPECT_EQ(flags(failed().ok), "x");
  expect_contains(message, "2 updates in a row");
  expect_contains(message, "the last good checkpoint is " + path("ckpt/llama_v2-2steps"));
}

TEST_F(Poisoned, AResumeBetweenTwoBadMicroBatchesChangesNoBit) {
  // Two micro-batches a step: the second of step 3 is bad, and the first of step 4.
  RunConfig config = poisoned_options({7, 8});
  config.gradient_accumulation_steps = 2;
  config.max_skipped_steps = 2;
  config.max_steps = 8;
  config.save_ckpt = false;
  RunTrace straight = train(config);
  EXPECT_EQ(flags(straight.ok), "...xx...");
  config.save_ckpt = true;
  config.max_steps = 4;
  EXPECT_EQ(flags(train(config).ok), "...x");
  config.max_steps = 8;
  RunTrace resumed = train(config);
  EXPECT_EQ(flags(resumed.ok), "x...");
  expect_contains(resumed.log,
                  "Step 4: loss or gradient norm is not finite; the update was skipped (2 "
                  "in a row)");
  EXPECT_EQ(resumed.losses,
            (std::vector<std::string>{straight.losses.begin() + 4, straight.losses.end()}));
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
}

using LossScaleTest = TrainingTest;

TEST_F(LossScaleTest, OverflowsOfF16AreNoFailuresUntilTheLossScaleIsLowest) {
  RunConfig config = options(40);
  config.use_fp16 = true;
  config.max_skipped_steps = 1;
  config.save_ckpt = false;
  RunTrace good = train(config);
  EXPECT_TRUE(good.ok.back());
  std::string metrics = read_file(path("metrics"));
  expect_contains(metrics.substr(0, metrics.find('\n')), "\"loss_scale\":65536,\"ok\":");
  expect_contains(good.log, ", Loss scale: 65536");

  for (int step = 0; step < 20; ++step) config.inject.push_back(cat("nan@step=", step));
  expect_contains(failure(config), "stopped at step 17: 2 updates in a row were not finite");
  EXPECT_EQ(failed().ok, std::vector<bool>(18, false));  // 2^16 ... 2^1, and twice at 2^0
  expect_contains(log(),
                  "Step 0: gradients overflow at loss scale 65536; the update was skipped, the "
                  "scale is now 32768");
  expect_contains(log(), "Step 15: gradients overflow at loss scale 2; ");
  expect_lacks(log(), "Step 16: gradients overflow");
}

// No scale changes the forward pass.
TEST_F(LossScaleTest, ALossThatIsNotFiniteIsNoOverflowOfGradients) {
  RunConfig config = options(40);
  config.use_fp16 = true;
  config.max_skipped_steps = 1;
  config.save_ckpt = false;
  ModelConfig overflows = tiny_model();
  overflows.initializer_range = 1e5;
  expect_contains(failure(config, overflows),
                  "stopped at step 1: 2 updates in a row were not finite");
  expect_lacks(log(), "gradients overflow");
  expect_contains(log(), "Step 0: loss or gradient norm is not finite");
  expect_contains(log(), "First non-finite value: ");
}

}  // namespace
}  // namespace tessera
