// Checkpoints in several directories, each with its own interval and number of those that stay.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/directory.h"
#include "checkpoint/directory_lock.h"
#include "tests/checkpoint/flipped_bits.h"
#include "tests/checkpoint/whole_state.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class Tiers : public TrainingTest {
 protected:
  // A fast one every 2 steps, of which 2 stay, and a slow one every 5.
  RunConfig tiers(int64_t steps) const {
    RunConfig config = options(steps);
    config.checkpoint_dir = {path("fast"), path("slow")};
    config.checkpoint_freq = {"2", "5"};
    config.num_kept_checkpoints = {"2", "None"};
    return config;
  }
  RunConfig resumed(int64_t steps) const {
    RunConfig config = tiers(steps);
    config.resume_from_checkpoint = config.checkpoint_dir;
    return config;
  }
  // From here on a checkpoint of this step fails there, and no other.
  void block(const std::string& place, int step) const {
    fs::create_directories(path(place));
    write(cat(place, "/", name(step)), "in the way");
    write(cat(place, "/", name(step), ".replaced"), "in the way");
  }
  static std::string name(int step) { return cat("llama_v2-", step, "steps"); }
};

TEST_F(Tiers, EachHasItsIntervalAndItsRetention) {
  const RunTrace straight = train(options(11));
  for (const char* how : {"on", "off"}) {
    RunConfig config = tiers(11);
    config.async_checkpoint = how;
    RunTrace run = train(config);
    EXPECT_EQ(run.fingerprint, straight.fingerprint);
    // The last step is in both.
    EXPECT_EQ(checkpoints("fast"), (Names{name(10), name(11)}));
    EXPECT_EQ(checkpoints("slow"), (Names{name(5), name(10), name(11)}));
    expect_contains(run.log, cat("Writing checkpoint to ", path("fast"), "/", name(10), "."));
    expect_contains(run.log, cat("Writing checkpoint to ", path("slow"), "/", name(10), "."));
    expect_contains(run.log, cat("Checkpoint of step 10 in '", path("slow"), "': "));
    for (int step : {10, 11}) {
      CheckpointReader fast(path("fast/" + name(step))), slow(path("slow/" + name(step)));
      EXPECT_EQ(WholeState(fast), WholeState(slow));
      EXPECT_EQ(fast.run_json(), slow.run_json());
      EXPECT_EQ(fast.origin().run, slow.origin().run);
    }
    for (const char* place : {"fast", "slow"}) fs::remove_all(path(place));
  }
}

TEST_F(Tiers, AResumeTakesTheNewestOfAllThatIsWhole) {
  const RunTrace straight = train(options(12));
  train(tiers(9));  // fast: 8 9, slow: 5 9
  fs::remove_all(path("fast/" + name(9)));
  fs::remove_all(path("slow/" + name(9)));
  struct Case {
    std::function<void()> damage;
    std::string taken;
  };
  const std::vector<Case> cases{
      {[] {}, "fast/" + name(8)},
      {[&] { flip_a_bit(path("fast/" + name(8) + "/state.safetensors")); }, "slow/" + name(5)},
      {[&] { fs::remove(path("fast/" + name(8) + "/manifest.json")); }, "slow/" + name(5)},
      {[&] { fs::remove_all(path("fast")); }, "slow/" + name(5)},
      // Not a directory at all.
      {[&] { fs::remove_all(path("fast")), write("fast", "x"); }, "slow/" + name(5)},
  };
  fs::copy(path("fast"), path("fast.kept"), fs::copy_options::recursive);
  fs::copy(path("slow"), path("slow.kept"), fs::copy_options::recursive);
  for (const Case& one : cases) {
    for (const char* place : {"fast", "slow"}) {
      fs::remove_all(path(place));
      fs::copy(path(cat(place, ".kept")), path(place), fs::copy_options::recursive);
    }
    one.damage();
    RunConfig config = resumed(12);
    config.checkpoint_dir = {path("slow")};
    config.checkpoint_freq = {"5"};
    config.num_kept_checkpoints = {};
    RunTrace again = train(config);
    expect_contains(again.log, "Checkpoint loaded from " + path(one.taken));
    EXPECT_EQ(again.fingerprint, straight.fingerprint) << one.taken;
  }
}

TEST_F(Tiers, OfTwoOfOneStepTheDamagedOneIsReplacedByTheOther) {
  train(tiers(10));
  flip_a_bit(path("fast/" + name(10) + "/state.safetensors"));
  RunTrace again = train(resumed(12));
  expect_contains(again.log, "Checkpoint loaded from " + path("slow/" + name(10)));
  expect_contains(again.log, "Skipping '" + path("fast/" + name(10)) + "' on all ranks");
}

TEST_F(Tiers, WhatADirectoryLacksIsSavedThereWithoutAStep) {
  const RunTrace straight = train(tiers(10));
  flip_a_bit(path("fast/" + name(10) + "/state.safetensors"));
  EXPECT_EQ(train(resumed(10)).fingerprint, straight.fingerprint);
  fs::remove_all(path("slow"));
  const RunTrace again = train(resumed(10));
  expect_contains(again.log, "Checkpoint loaded from " + path("fast/" + name(10)));
  EXPECT_TRUE(again.losses.empty());
  EXPECT_EQ(checkpoints("slow"), Names{name(10)});
  EXPECT_EQ(lines_with(again.log, "Writing checkpoint").size(), 1u);
}

// A run was killed behind the first of two saves of one step.
TEST_F(Tiers, WhatWasDueAndIsMissingIsSavedFirst) {
  train(tiers(10));
  fs::remove_all(path("slow/" + name(10)));
  const RunTrace again = train(resumed(13));
  EXPECT_EQ(checkpoints("slow"), (Names{name(5), name(10), name(13)}));
  EXPECT_EQ(CheckpointReader(path("slow/" + name(10))).origin().run,
            CheckpointReader(path("fast/" + name(12))).origin().run);
  // Elsewhere nothing is missing.
  RunConfig config = resumed(14);
  config.resume_from_checkpoint = {path("slow/" + name(10))};
  config.checkpoint_dir = {path("other"), path("another")};
  train(config);
  EXPECT_EQ(checkpoints("other"), (Names{name(12), name(14)}));
  EXPECT_EQ(checkpoints("another"), Names{name(14)});
}

TEST_F(Tiers, ATimeGoesOnOverResumes) {
  RunConfig config = tiers(4);
  config.checkpoint_freq = {"2", "1h"};
  train(config);
  config = resumed(8);
  config.checkpoint_freq = {"2", "1h"};
  train(config);
  EXPECT_EQ(checkpoints("slow"), (Names{name(4), name(8)})) << "of an hour nothing has passed";
  fs::last_write_time(path("slow/" + name(8) + "/manifest.json"),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  config.max_steps = 12;
  train(config);
  EXPECT_EQ(checkpoints("slow"), (Names{name(4), name(8), name(9), name(12)}));
  fs::remove_all(path("slow"));
  config.max_steps = 16;
  train(config);
  EXPECT_EQ(checkpoints("slow"), (Names{name(13), name(16)}));
}

TEST_F(Tiers, OneThatFailsLeavesTheOthers) {
  block("fast", 4);
  RunTrace run = train(tiers(10));
  EXPECT_EQ(run.end, RunEnd::kFinished);
  EXPECT_EQ(lines_with(run.log, "Checkpoint failed, training goes on").size(), 1u);
  EXPECT_EQ(checkpoints("slow"), (Names{name(5), name(10)}));
  EXPECT_TRUE(checkpoints("fast").contains(name(10)));

  // The last one of a run is in one of them at least.
  fs::remove_all(path("fast"));
  fs::remove_all(path("slow"));
  block("fast", 9);
  run = train(tiers(9));
  EXPECT_EQ(run.end, RunEnd::kFinished);
  expect_contains(run.log, "Checkpoint failed: ");
  EXPECT_TRUE(checkpoints("slow").contains(name(9)));
  fs::remove_all(path("fast"));
  fs::remove_all(path("slow"));
  for (const char* place : {"fast", "slow"}) block(place, 3);
  expect_contains(failure(tiers(3)), cat("its last checkpoint could not be written to '",
                                         path("fast"), "', '", path("slow"), "'"));
}

TEST_F(Tiers, AllAreTriedAndLockedBeforeTraining) {
  RunConfig config = tiers(4);
  config.checkpoint_dir[1] = path("text.txt") + "/slow";
  expect_contains(failure(config), "--checkpoint_dir: cannot create");
  EXPECT_TRUE(failed().losses.empty());
  DirectoryLock other(path("slow"), {kJob, 0});
  expect_contains(failure(tiers(4)), "is in use by");
  EXPECT_FALSE(fs::exists(path("fast")));  // made for nothing
}

TEST_F(Tiers, ARestartGoesOnWithoutADirectoryThatIsGone) {
  const RunTrace straight = train(options(12));
  set_job(kJob, 0);
  train(tiers(9));
  fs::remove_all(path("fast"));
  write("fast", "where the disk was");
  set_job(kJob, 1);
  RunConfig config = tiers(12);
  RunTrace again = train(config);
  expect_contains(again.log, "this attempt goes on without it");
  expect_contains(again.log, "Checkpoint loaded from " + path("slow/" + name(9)));
  EXPECT_EQ(again.fingerprint, straight.fingerprint);
  EXPECT_EQ(checkpoints("slow"), (Names{name(5), name(9), name(10), name(12)}));
  // But not without any.
  config.checkpoint_dir = {path("fast"), path("text.txt") + "/slow"};
  expect_contains(failure(config), "--checkpoint_dir: cannot create");
}

TEST_F(Tiers, AFreshStartIsRefusedWhereverThereIsAnotherRun) {
  train(tiers(5));
  fs::remove_all(path("fast"));
  try {
    train(tiers(6));
    FAIL() << "not refused";
  } catch (const UsageError& error) {
    expect_contains(error.what(), cat("--checkpoint_dir '", path("slow"),
                                      "' holds checkpoints of an "
                                      "earlier run"));
    expect_contains(error.what(), cat("give --resume_from_checkpoint ", path("fast"), " ",
                                      path("slow"), " to go on"));
  }
}

TEST_F(Tiers, TheBestAndTheLastOneAreInAll) {
  RunConfig config = tiers(12);
  config.num_kept_checkpoints = {"1", "1"};
  config.validation_freq = 3;
  config.validation_fraction = 0.1;
  config.best_val_loss = 100;
  RunTrace run = train(config);
  ASSERT_FALSE(lines_with(run.log, "New validation loss record").empty());
  for (const char* place : {"fast", "slow"}) {
    auto newest = newest_complete_checkpoint(path(place));
    ASSERT_TRUE(newest);
    auto record = nlohmann::json::parse(CheckpointReader(*newest).run_json());
    EXPECT_TRUE(checkpoints(place).contains(record["best_validation"]["checkpoint"]))
        << record["best_validation"];
    EXPECT_LE(checkpoints(place).size(), 2u);
  }
}

TEST_F(Tiers, AnInterruptedRunSavesInAll) {
  RunConfig config = tiers(1000);
  config.checkpoint_freq = {"1", "1000"};
  std::thread asks([&] {
    while (!fs::exists(path("fast/" + name(3))))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    request_interruption();
  });
  RunTrace run = train(config);
  asks.join();
  EXPECT_EQ(run.end, RunEnd::kInterrupted);
  const std::string last = name(static_cast<int>(run.steps));
  EXPECT_EQ(checkpoints("slow"), Names{last});
  EXPECT_TRUE(checkpoints("fast").contains(last));
}

TEST_F(Tiers, ATimeIsAnInterval) {
  RunConfig config = options(100);
  config.checkpoint_dir = {path("fast"), path("slow"), path("both")};
  config.checkpoint_freq = {"0.02s", "1h", "50,0.02s"};
  config.lr_decay_iters = 100;
  const double begin = monotonic_seconds();
  RunTrace run = train(config);
  const double seconds = monotonic_seconds() - begin;
  EXPECT_EQ(checkpoints("slow"), Names{name(100)});
  EXPECT_TRUE(checkpoints("both").contains(name(50)));
  EXPECT_GE(checkpoints("both").size(), checkpoints("fast").size());
  // By the run's own clock: every so often, never more often, and at the end.
  const size_t saves = lines_with(run.log, cat("Writing checkpoint to ", path("fast"))).size();
  EXPECT_EQ(saves, checkpoints("fast").size());
  EXPECT_GE(saves, 2u) << "100 steps in less than 0.02 s?";
  EXPECT_LE(static_cast<double>(saves), seconds / 0.02 + 1);
}

}  // namespace
}  // namespace tessera
