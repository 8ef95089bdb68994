// A run and its directory of checkpoints: whose they are, restarts, damage, and two runs at once.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/directory_lock.h"
#include "tests/checkpoint/flipped_bits.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class RunDirectory : public TrainingTest {
 protected:
  CheckpointOrigin origin(const std::string& checkpoint) const {
    return read_manifest(path(checkpoint)).origin;
  }
  RunConfig resumed(int64_t steps) const {
    RunConfig config = options(steps);
    config.resume_from_checkpoint = config.checkpoint_dir;
    return config;
  }
  std::string usage_error(const RunConfig& config) {
    try {
      train(config);
    } catch (const UsageError& error) {
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }
};

TEST_F(RunDirectory, ARunKeepsItsIdentity) {
  RunTrace first = train(options(2));
  CheckpointOrigin one = origin("ckpt/llama_v2-2steps");
  expect_contains(first.log, cat("] Run ", one.run, "\n"));
  EXPECT_EQ(one.job, one.run);
  RunTrace second = train(resumed(4));
  CheckpointOrigin two = origin("ckpt/llama_v2-4steps");
  expect_contains(second.log, cat("] Run ", one.run, ", continued\n"));
  EXPECT_EQ(two.run, one.run);
  EXPECT_NE(two.job, one.job);
  RunConfig other = options(1);
  other.checkpoint_dir = {path("other")};
  train(other);
  EXPECT_NE(origin("other/llama_v2-1steps").run, one.run);
}

TEST_F(RunDirectory, AFreshStartInAUsedDirectoryIsRefused) {
  train(options(2));
  std::string message = usage_error(options(4));
  expect_contains(message, cat("--checkpoint_dir '", path("ckpt"),
                               "' holds checkpoints of an earlier run ('llama_v2-2steps'): give "
                               "--resume_from_checkpoint ",
                               path("ckpt"), " to go on with it, or another --checkpoint_dir"));
  EXPECT_TRUE(failed().losses.empty());
  EXPECT_EQ(checkpoints(), Names{"llama_v2-2steps"});

  RunConfig other = options(3);
  other.checkpoint_dir = {path("other")};
  train(other);
  RunConfig mixed = resumed(4);
  mixed.resume_from_checkpoint = {path("other")};
  expect_contains(usage_error(mixed), "holds checkpoints of another run than the one resumed");
  EXPECT_EQ(train(resumed(4)).steps, 4);
  // Nothing is written where nothing is saved.
  RunConfig evaluation = options(1);
  evaluation.eval_only = true;
  EXPECT_NO_THROW(train(evaluation));
}

TEST_F(RunDirectory, AnOldCheckpointWithoutIdentityIsResumed) {
  train(options(2));
  Manifest manifest = read_manifest(path("ckpt/llama_v2-2steps"));
  manifest.origin = {};
  write("ckpt/llama_v2-2steps/manifest.json", to_json(manifest));
  EXPECT_EQ(train(resumed(4)).losses.size(), 2u);
  EXPECT_EQ(origin("ckpt/llama_v2-4steps").run.size(), 32u);
  EXPECT_EQ(train(resumed(6)).steps, 6);
  EXPECT_EQ(origin("ckpt/llama_v2-6steps").run, origin("ckpt/llama_v2-4steps").run);
}

TEST_F(RunDirectory, ARestartGoesOnWithItsOwn) {
  RunTrace straight = train(options(6));
  RunConfig config = options(3);
  config.checkpoint_dir = {path("parts")};
  set_job(kJob, 0);
  train(config);
  EXPECT_EQ(origin("parts/llama_v2-3steps").run, kJob);
  // Without --resume_from_checkpoint, and with one from which the job had begun.
  for (const std::string& source : {std::string(), path("nothing")}) {
    set_job(kJob, 1);
    config.max_steps = 6;
    config.resume_from_checkpoint.clear();
    if (!source.empty()) config.resume_from_checkpoint.push_back(source);
    RunTrace again = train(config);
    expect_contains(again.log, "Checkpoint loaded from " + path("parts/llama_v2-3steps"));
    EXPECT_EQ(again.fingerprint, straight.fingerprint);
    fs::remove_all(path("parts/llama_v2-6steps"));
  }
}

TEST_F(RunDirectory, ARestartBeforeTheFirstCheckpointStartsAfresh) {
  RunConfig config = options(2);
  set_job(kJob, 1);
  RunTrace run = train(config);
  EXPECT_EQ(run.losses.size(), 2u);
  EXPECT_EQ(origin("ckpt/llama_v2-2steps").run, kJob);
}

TEST_F(RunDirectory, ARestartDoesNotTakeAnotherRunsCheckpoint) {
  train(options(5));
  for (int attempt : {0, 1, 2}) {
    set_job(kJob, attempt);
    expect_contains(usage_error(options(9)), "holds checkpoints of an earlier run");
  }
  EXPECT_EQ(checkpoints(), Names{"llama_v2-5steps"});
}

// Of two jobs of one run the restarted one goes back to where it was itself.
TEST_F(RunDirectory, ARestartGoesOnWithTheCheckpointsOfItsJob) {
  set_job("aaaabbbbccccdddd0000111122223333", 0);
  RunConfig config = options(6);
  config.checkpoint_freq = {"2"};
  train(config);
  // For a while what is later cannot be read.
  for (int step : {4, 6}) flip_a_bit(path(cat("ckpt/llama_v2-", step, "steps/state.safetensors")));
  config = resumed(3);
  set_job(kJob, 0);
  expect_contains(train(config).log, "Checkpoint loaded from " + path("ckpt/llama_v2-2steps"));
  for (int step : {4, 6}) flip_a_bit(path(cat("ckpt/llama_v2-", step, "steps/state.safetensors")));
  config.max_steps = 5;
  set_job(kJob, 1);
  expect_contains(train(config).log, "Checkpoint loaded from " + path("ckpt/llama_v2-3steps"));
}

TEST_F(RunDirectory, DamageFallsBackToTheNextWholeOne) {
  RunConfig config = options(6);
  config.checkpoint_freq = {"2"};
  RunTrace straight = train(config);
  flip_a_bit(path("ckpt/llama_v2-6steps/state.safetensors"));
  flip_a_bit(path("ckpt/llama_v2-4steps/run.json"));
  config.resume_from_checkpoint = config.checkpoint_dir;
  RunTrace again = train(config);
  expect_contains(again.log,
                  cat("'", path("ckpt/llama_v2-6steps/state.safetensors"), "': tensor '"));
  expect_contains(again.log, cat("'", path("ckpt/llama_v2-4steps/run.json"), "' has hash "));
  for (int step : {6, 4}) {
    std::string checkpoint = path(cat("ckpt/llama_v2-", step, "steps"));
    expect_contains(again.log, cat(". Skipping '", checkpoint, "' on all ranks"));
    EXPECT_EQ(again.log.find("Checkpoint loaded from " + checkpoint), std::string::npos);
  }
  expect_contains(again.log, "Checkpoint loaded from " + path("ckpt/llama_v2-2steps"));
  EXPECT_EQ(again.fingerprint, straight.fingerprint);
}

TEST_F(RunDirectory, AnOlderCheckpointIsNotResumedBesideLaterOnes) {
  RunConfig config = options(6);
  config.checkpoint_freq = {"2"};
  const RunTrace straight = train(config);
  config = options(8);
  config.resume_from_checkpoint = {path("ckpt/llama_v2-2steps")};
  expect_contains(
      usage_error(config),
      cat("--checkpoint_dir '", path("ckpt"), "' holds later checkpoints than the one resumed, '",
          path("ckpt/llama_v2-2steps"),
          "': 2, 'llama_v2-4steps' to 'llama_v2-6steps'. Move them "
          "away or remove them, or give another --checkpoint_dir; --resume_from_checkpoint ",
          path("ckpt"), " goes on with the latest"));
  EXPECT_TRUE(failed().losses.empty());
  EXPECT_EQ(checkpoints(), (Names{"llama_v2-2steps", "llama_v2-4steps", "llama_v2-6steps"}));
  config.resume_from_checkpoint = {path("ckpt/llama_v2-4steps")};
  expect_contains(usage_error(config), "': 'llama_v2-6steps'. Move");
  // Elsewhere, without saving, and over what is damaged it goes on.
  config.max_steps = 6;
  config.checkpoint_dir = {path("other")};
  EXPECT_EQ(train(config).fingerprint, straight.fingerprint);
  config = options(6);
  config.save_ckpt = false;
  config.resume_from_checkpoint = {path("ckpt/llama_v2-4steps")};
  EXPECT_EQ(train(config).fingerprint, straight.fingerprint);
  config.save_ckpt = true;
  flip_a_bit(path("ckpt/llama_v2-6steps/state.safetensors"));
  config.resume_from_checkpoint = {path("ckpt") + "/."};  // the same by another name
  EXPECT_EQ(train(config).fingerprint, straight.fingerprint);
}

TEST_F(RunDirectory, WhereNothingIsWholeNothingIsTrained) {
  train(options(2));
  flip_a_bit(path("ckpt/llama_v2-2steps/state.safetensors"));
  std::string message = failure(resumed(4));
  expect_contains(message, "the checkpoint is damaged");
  expect_contains(message, "there is no older one that is whole");
  EXPECT_TRUE(failed().losses.empty());
  EXPECT_EQ(checkpoints(), Names{"llama_v2-2steps"});
}

TEST_F(RunDirectory, ADirectoryInUseIsRefused) {
  DirectoryLock other(path("ckpt"), {kJob});
  std::string message = failure(options(2));
  expect_contains(message, cat("'", path("ckpt"), "' is in use by process ", ::getpid(), " on "));
  expect_contains(message, cat("(job ", kJob, ")"));
  EXPECT_TRUE(failed().losses.empty());
  EXPECT_EQ(checkpoints(), Names{"run.lock"});
}

TEST_F(RunDirectory, APipeAsAManifestIsSkipped) {
  train(options(2));
  fs::create_directories(path("ckpt/llama_v2-8steps"));
  ASSERT_EQ(::mkfifo(path("ckpt/llama_v2-8steps/manifest.json").c_str(), 0600), 0);
  expect_contains(train(resumed(4)).log, "Checkpoint loaded from " + path("ckpt/llama_v2-2steps"));
}

}  // namespace
}  // namespace tessera
