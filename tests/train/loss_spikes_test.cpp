// Losses that stand out: which they are, and what is done about them.
#include <cmath>
#include <limits>

#include "checkpoint/checkpoint.h"
#include "checkpoint/places.h"
#include "data/sample_order.h"
#include "options/run_record.h"
#include "tests/checkpoint/save_boxes.h"
#include "tests/checkpoint/whole_state.h"
#include "tests/remote/local_server.h"
#include "tests/train/training_fixture.h"
#include "train/loss_history.h"

namespace tessera {
namespace {

TEST(LossHistory, LimitsAreRobust) {
  LossHistory history(6, 8);
  EXPECT_TRUE(std::isinf(history.limit()));
  for (double loss : {3.0, 3.2, 2.8}) history.add(loss);
  EXPECT_TRUE(std::isinf(history.limit())) << "half a window is not known yet";
  history.add(3.1);
  // Median 3.05, distances 0.05 0.15 0.25 0.05: their median is 0.1.
  EXPECT_NEAR(history.limit(), 3.05 + 6 * 1.4826 * 0.1, 1e-12);
  // One outlier, and one that is no number, move it by little.
  history.add(50);
  history.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(history.losses().size(), 5u);
  EXPECT_NEAR(history.limit(), 3.1 + 6 * 1.4826 * 0.1, 1e-12);
  for (int i = 0; i < 8; ++i) history.add(2);
  EXPECT_EQ(history.losses().size(), 8u);
  EXPECT_NEAR(history.limit(), 2 + 6 * 0.02, 1e-12) << "at least a hundredth of the median";
  // Where the loss stays higher, that is how it is.
  for (int i = 0; i < 5; ++i) history.add(4);
  EXPECT_GT(history.limit(), 4);
}

TEST(LossHistory, IsRestoredToTheBit) {
  LossHistory history(6, 4), again(6, 4);
  for (double loss : {1.0 / 3, 0.1, 0.7}) history.add(loss);
  again.restore(history.losses());
  EXPECT_EQ(again.limit(), history.limit());
}

// A run of one window a step; chosen ones are of bytes that no other has.
class LossSpikes : public TrainingTest {
 protected:
  static constexpr int64_t kSteps = 60;

  // Learned at once, so that losses hardly scatter.
  static std::string even_text() {
    std::string text;
    while (text.size() < 2000) text += "abcd efgh ijkl ";
    return text;
  }

  RunConfig spiky_options(const std::set<int64_t>& steps, const std::string& policy) {
    RunConfig config = options(kSteps);
    config.train_batch_size = 1;
    config.run_validation = false;
    config.validation_fraction = 0;
    config.bf16 = false;
    config.loss_spike_policy = policy;
    config.loss_spike_window = 16;
    config.checkpoint_freq = {"10"};
    config.lr_decay_iters = 80;
    std::string text = even_text();
    const auto windows = static_cast<int64_t>((text.size() + 1 - 2) / 16 + 1);
    const SampleOrder order(static_cast<uint64_t>(config.seed), windows, true);
    for (const int64_t step : steps)
      text.replace(static_cast<size_t>(order.at(step).window) * 16 + 1, 15,
                   "\x01Q\x02Z\x03X\x04J\x05K\x06V\x07W\x08");
    write("text.txt", text);
    std::filesystem::remove_all(path("ckpt"));
    return config;
  }

  // What checkpoint `step` would be, had the job been at another place in the data then.
  void move_in_data(int64_t step, int64_t position) {
    CheckpointReader reader(path(cat("ckpt/llama_v2-", step, "steps")));
    WholeState state(reader);
    RunRecord record = run_record_from_json(reader.run_json(), "");
    record.position = position;
    save_boxes(path("ckpt"), "llama_v2", step, state.boxes(), to_json(record), {}, reader.origin());
  }
};

std::string flags_of(const RunTrace& trace) {
  std::string text;
  for (const bool ok : trace.ok) text += ok ? '.' : 'x';
  return text;
}

TEST_F(LossSpikes, AWarningChangesNothing) {
  RunConfig config = spiky_options({45}, "warn");
  config.save_ckpt = false;
  const RunTrace warned = train(config);
  const auto lines = lines_with(warned.log, "is a spike");
  ASSERT_EQ(lines.size(), 1u) << warned.log;
  expect_contains(lines[0], "Step 45: loss ");
  expect_contains(lines[0], "of the last 16 steps and 6 deviations)");
  config.loss_spike_policy = "none";
  EXPECT_EQ(train(config).fingerprint, warned.fingerprint);
}

TEST_F(LossSpikes, SkippedUpdatesAreLeftOutToTheBit) {
  RunConfig config = spiky_options({45}, "skip");
  config.save_ckpt = false;
  const RunTrace skipped = train(config);
  EXPECT_EQ(flags_of(skipped), std::string(45, '.') + "x" + std::string(14, '.')) << skipped.log;
  EXPECT_EQ(lines_with(skipped.log, "; the update was skipped (1 in a row)").size(), 1u);
  EXPECT_EQ(lines_with(skipped.log, "First non-finite").size(), 0u);
  // As an update that is left out because it is not finite.
  config.loss_spike_policy = "none";
  config.inject = {"nan@step=45"};
  const RunTrace without = train(config);
  EXPECT_EQ(flags_of(without), flags_of(skipped));
  EXPECT_EQ(without.fingerprint, skipped.fingerprint);
}

// Their loss is 0, of which every other would stand out.
TEST_F(LossSpikes, StepsWithoutATokenToLearnDoNotCount) {
  std::string rows;
  for (int i = 0; i < 60; ++i) {
    std::vector<int> ids(12, 'a' + i % 20), none(12, -100);
    rows += nlohmann::json{{"input_ids", ids}, {"labels", i % 3 == 0 ? ids : none}}.dump() + "\n";
  }
  write("rows.jsonl", rows);
  for (const char* policy : {"skip", "warn"}) {
    RunConfig config = spiky_options({}, policy);
    config.dataset = path("rows.jsonl");
    config.loss_spike_threshold = 1000;
    config.save_ckpt = false;
    const RunTrace trace = train(config);
    EXPECT_EQ(flags_of(trace), std::string(kSteps, '.'));
    EXPECT_EQ(lines_with(trace.log, "is a spike").size(), 0u) << trace.log;
  }
}

TEST_F(LossSpikes, WhatIsKnownOfLossesSurvivesAResume) {
  RunConfig config = spiky_options({42}, "skip");
  const RunTrace straight = train(config);
  EXPECT_EQ(flags_of(straight).find('x'), 42u);
  std::filesystem::remove_all(path("ckpt"));
  config.max_steps = 40;
  train(config);
  config.max_steps = kSteps;
  config.resume_from_checkpoint = config.checkpoint_dir;
  const RunTrace resumed = train(config);
  EXPECT_EQ(flags_of(resumed).find('x'), 2u) << "fewer steps than half a window before";
  EXPECT_EQ(resumed.fingerprint, straight.fingerprint);
}

TEST_F(LossSpikes, TooManyInARowStopTheRun) {
  RunConfig config = spiky_options({45, 46, 47}, "skip");
  config.max_skipped_steps = 2;
  config.async_checkpoint = "off";
  const std::string message = failure(config);
  expect_contains(message,
                  "stopped at step 47: 3 updates in a row were skipped, more than "
                  "--max_skipped_steps 2 (loss spikes); the last good checkpoint is " +
                      path("ckpt/llama_v2-40steps"));
}

TEST_F(LossSpikes, ARewoundRunIsOneThatNeverSawTheBatches) {
  RunConfig config = spiky_options({45}, "rewind");
  config.tensorboard_dir = {path("events")};
  const RunTrace rewound = train(config);
  config.tensorboard_dir = {};
  const std::filesystem::directory_iterator events(path("events"));
  // An event of step 41: session_log with the status START.
  expect_contains(read_file(events->path()), "\x10\x29\x3a\x02\x08\x01");
  const auto lines = lines_with(rewound.log, "went back to");
  ASSERT_EQ(lines.size(), 1u) << rewound.log;
  expect_contains(lines[0],
                  "what steps 40 to 45 learned is undone, and the samples since then, 40 to 45, "
                  "are left out (rewind 1 of at most 3)");
  EXPECT_EQ(rewound.steps, kSteps);
  EXPECT_EQ(rewound.position, kSteps + 6);
  EXPECT_EQ(rewound.tokens_seen, kSteps * 16);
  ASSERT_EQ(rewound.losses.size(), 46u + 20);
  const RunRecord record =
      run_record_from_json(CheckpointReader(path("ckpt/llama_v2-60steps")).run_json(), "");
  EXPECT_EQ(record.skipped_samples, (std::vector<std::pair<int64_t, int64_t>>{{40, 46}}));
  EXPECT_EQ(record.loss_spike_rewinds, 1);

  // The other run is moved past them by hand, and never looks for spikes.
  std::filesystem::remove_all(path("ckpt"));
  config.loss_spike_policy = "none";
  config.max_steps = 40;
  train(config);
  move_in_data(40, 46);
  config.max_steps = kSteps;
  config.resume_from_checkpoint = config.checkpoint_dir;
  const RunTrace never = train(config);
  EXPECT_EQ(never.fingerprint, rewound.fingerprint);
  EXPECT_EQ(never.position, rewound.position);
  EXPECT_EQ(never.losses,
            (std::vector<std::string>{rewound.losses.begin() + 46, rewound.losses.end()}));
}

TEST_F(LossSpikes, ARewindNeverGoesForward) {
  RunConfig config = spiky_options({45}, "none");
  train(config);
  config.loss_spike_policy = "rewind";
  config.loss_spike_window = 4;
  config.resume_from_checkpoint = {path("ckpt/llama_v2-40steps")};
  set_job("00112233445566778899aabbccddeeff", 1);  // of a restart, beside 50 and 60
  const RunTrace trace = train(config);
  const auto lines = lines_with(trace.log, "went back to");
  ASSERT_EQ(lines.size(), 1u) << trace.log;
  expect_contains(lines[0], cat("went back to '", path("ckpt/llama_v2-40steps"), "'"));
}

// What the steps learned from, in order.
std::vector<std::string> data_hashes(const std::string& metrics) {
  std::vector<std::string> hashes;
  for (std::string_view line : split(metrics, '\n'))
    if (!line.empty()) hashes.push_back(nlohmann::json::parse(line).at("data_hash"));
  return hashes;
}

TEST_F(LossSpikes, ARewindMovesOnInTheDataAlsoInAStream) {
  for (const bool streams : {false, true}) {
    RunConfig config = spiky_options({45}, "rewind");
    config.data_hash = true;
    if (streams) {
      std::string text = even_text();
      text.replace(16 * 45, 24, "\x01Q\x02Z\x03X\x04J\x05K\x06V\x07W\x08QJXZ\x01\x02\x03\x04\x05");
      write("text.txt", text);
      config.streaming = "on";
      config.data_lanes = config.shuffle_buffer = 1;
      config.max_loss_spike_rewinds = 5;
    }
    const RunTrace trace = train(config);
    EXPECT_GE(lines_with(trace.log, "went back to").size(), 1u) << trace.log;
    const auto seen = data_hashes(read_file(path("metrics")));
    EXPECT_EQ(trace.steps, kSteps);
    EXPECT_EQ(static_cast<int64_t>(seen.size()), trace.position);
    config.loss_spike_policy = "none";
    config.save_ckpt = false;
    config.max_steps = static_cast<int64_t>(seen.size());
    train(config);
    EXPECT_EQ(seen, data_hashes(read_file(path("metrics")))) << "each batch once, in its order";
  }
}

TEST_F(LossSpikes, AResumeAfterARewindGoesOnAtItsPlace) {
  RunConfig config = spiky_options({45}, "rewind");
  const RunTrace straight = train(config);
  std::filesystem::remove_all(path("ckpt/llama_v2-60steps"));
  config.resume_from_checkpoint = config.checkpoint_dir;
  const RunTrace again = train(config);  // from step 50, which lies behind the rewind
  EXPECT_EQ(again.losses.size(), 10u);
  EXPECT_EQ(again.fingerprint, straight.fingerprint);
  EXPECT_EQ(again.position, straight.position);
}

// What is left of the data makes fewer steps after a rewind; those weights are others.
TEST_F(LossSpikes, TheLastWeightsAreValidatedAlsoAfterARewind) {
  RunConfig config = spiky_options({55}, "rewind");
  config.loss_spike_threshold = 60;
  config.checkpoint_freq = {"40"};
  config.validation_dataset = path("text.txt");
  config.run_validation = true;
  config.epochs = 1;
  config.max_steps = 1000;
  const RunTrace plain = train(config);
  std::filesystem::remove_all(path("ckpt"));
  config.validation_freq = plain.steps;
  const RunTrace rewound = train(config);
  EXPECT_EQ(rewound.steps, plain.steps);
  EXPECT_EQ(rewound.validations.size(), 2u) << rewound.log;
}

TEST_F(LossSpikes, RewindsAreBounded) {
  RunConfig config = spiky_options({43, 47}, "rewind");
  config.max_loss_spike_rewinds = 1;
  const std::string message = failure(config);
  expect_contains(message, "is a spike, above ");
  expect_contains(message,
                  ", after 1 rewinds, which is --max_loss_spike_rewinds; the last good "
                  "checkpoint is " +
                      path("ckpt/llama_v2-40steps"));
  EXPECT_EQ(lines_with(log(), "went back to").size(), 1u);
  EXPECT_EQ(failed().failure, message) << "in the metrics file";
}

TEST_F(LossSpikes, WithoutACheckpointTheUpdateIsSkipped) {
  RunConfig config = spiky_options({45}, "rewind");
  config.checkpoint_freq = {"1000"};
  const RunTrace trace = train(config);
  EXPECT_EQ(flags_of(trace).find('x'), 45u);
  EXPECT_EQ(trace.losses.size(), static_cast<size_t>(kSteps));
  expect_contains(trace.log, "there is no checkpoint to go back to: the update was skipped");
}

// The step that is there is whole, and saved.
TEST_F(LossSpikes, ABucketThatDoesNotAnswerTheRewindLosesNoStep) {
  const LocalServer server;
  RemoteOptions remote = server.options();
  remote.s3.access_key = "AKIDEXAMPLE";
  remote.s3.secret_key = "secret/key+example";
  bucket_store() = S3Store(remote);
  server.write("s3.json", R"({"unlisted": "run/llama_v2-40steps/manifest.json"})");
  RunConfig config = spiky_options({45}, "rewind");
  config.checkpoint_dir = {"s3://bucket/run"};
  expect_contains(failure(config), "SlowDown");
  EXPECT_EQ(failed().losses.size(), 46u);
  EXPECT_EQ(server.requests("PUT /s3/bucket/run/llama_v2-46steps/manifest.json").size(), 1u);
  expect_contains(log(), "the run ends before it has gone back: the update was skipped");
}

TEST(LimitedLoss, AnUpdateAboveTheLimitIsLeftOutAlone) {
  for (const DType compute : {DType::kF32, DType::kF16}) {
    ProgramOptions options = tiny_programs(2, 16, compute);
    options.limits_loss = true;
    TinySession tiny(tiny_model(), options);
    const TinyBatch batch(2, 16, 3);
    const std::vector<MicroBatch> step{batch.view()};
    EXPECT_TRUE(tiny.session.step(step, 0.01, 1).ok);
    const uint64_t before = tiny.fingerprint();
    tiny.session.set_max_loss(0.1);
    const StepResult spike = tiny.session.step(step, 0.01, 1);
    EXPECT_FALSE(spike.ok);
    EXPECT_TRUE(spike.spike);
    EXPECT_EQ(tiny.fingerprint(), before) << "weights, moments and the count of updates";
    EXPECT_EQ(spike.next_loss_scale, spike.loss_scale) << "nothing has overflowed";
    // A loss that is at the limit is none; what is not finite is no spike.
    tiny.session.set_max_loss(spike.loss);
    EXPECT_TRUE(tiny.session.step(step, 0.01, 1).ok);
    tiny.spoil("model.norm.weight", 0);
    const StepResult bad = tiny.session.step(step, 0.01, 1);
    EXPECT_FALSE(bad.ok);
    EXPECT_FALSE(bad.spike);
  }
}

}  // namespace
}  // namespace tessera
