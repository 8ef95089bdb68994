// Saving beside training: what is saved is the state at the moment of the save, whatever is done to
// it afterwards, and a run that saves so does what one does that waits.
#include "train/checkpoint_saver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>

#include "tests/base/scratch_directory.h"
#include "tests/checkpoint/whole_state.h"
#include "tests/programs/tiny_model.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(CheckpointSaver, WhatIsSavedIsTheStateAtTheSave) {
  ScratchDirectory scratch;
  TinySession tiny(tiny_model(), tiny_programs(2, 16, DType::kF32));
  CheckpointSaver saver(tiny.session, {});
  EXPECT_FALSE(saver.is_beside_training());
  saver.save_beside_training(tiny.backend.pool());
  EXPECT_TRUE(saver.is_beside_training());
  const std::vector<float> before = tiny.session.parameter("lm_head.weight");

  std::promise<void> may_write;
  std::shared_future<void> told = may_write.get_future().share();
  saver.start({{scratch.path(), {}, [told] { told.wait(); }}}, {"llama", 1, {}, "{}"});
  saver.wait_for_copy();
  EXPECT_FALSE(saver.is_done());
  const std::vector<float> changed(before.size(), 7.0f);
  tiny.session.write_parameter("lm_head.weight", 0, changed);
  EXPECT_FALSE(newest_complete_checkpoint(scratch.path()));
  may_write.set_value();
  CheckpointSaver::Result result = saver.finish();
  ASSERT_EQ(result.saved.size(), 1u);
  EXPECT_GT(result.saved[0].seconds, 0);

  CheckpointReader reader(result.saved[0].path);
  WholeState state(reader);
  std::vector<std::byte>& saved = state.content("lm_head.weight");
  ASSERT_EQ(saved.size(), before.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(saved.data(), before.data(), saved.size()), 0);

  // The next one has what is there now.
  saver.start({{scratch.path()}}, {"llama", 2, {}, "{}"});
  WholeState next{CheckpointReader(saver.finish().saved.at(0).path)};
  EXPECT_EQ(std::memcmp(next.content("lm_head.weight").data(), changed.data(), saved.size()), 0);
}

TEST(CheckpointSaver, AFailureIsToldAndLeavesTheOthers) {
  ScratchDirectory scratch;
  TinySession tiny(tiny_model(), tiny_programs(2, 16, DType::kF32));
  for (bool beside : {false, true}) {
    CheckpointSaver saver(tiny.session, {});
    if (beside) saver.save_beside_training(tiny.backend.pool());
    saver.start({{scratch / "a", {}, [] { throw UserError("not mine"); }}, {scratch / "b"}},
                {"llama", 1, {}, "{}"});
    saver.wait_for_copy();
    CheckpointSaver::Result result = saver.finish();
    ASSERT_EQ(result.saved.size(), 2u);
    EXPECT_EQ(result.saved[0].error, "not mine");
    EXPECT_EQ(result.saved[1].error, "");
    EXPECT_EQ(result.saved[1].path, scratch / "b/llama-1steps");
    EXPECT_NO_THROW(CheckpointReader(result.saved[1].path));
    EXPECT_FALSE(fs::exists(scratch / "a"));
    saver.start({{scratch / "a"}}, {"llama", 1, {}, "{}"});
    EXPECT_NO_THROW(CheckpointReader(saver.finish().saved.at(0).path));
    for (const char* place : {"a", "b"}) fs::remove_all(scratch / place);
  }
}

using SavingRun = TrainingTest;

TEST_F(SavingRun, BesideTrainingSavesTheSameBits) {
  auto run = [&](const std::string& how) {
    RunConfig config = options(6);
    config.async_checkpoint = how;
    config.checkpoint_freq = {"1"};
    config.checkpoint_dir = {path(how)};
    RunTrace trace = train(config);
    EXPECT_EQ(trace.log.find("beside training") != std::string::npos, how == "on");
    return trace;
  };
  RunTrace waits = run("off"), beside = run("on");
  EXPECT_EQ(waits.losses, beside.losses);
  EXPECT_EQ(waits.fingerprint, beside.fingerprint);
  EXPECT_EQ(checkpoints("on").size(), 6u);
  for (const std::string& name : checkpoints("off")) {
    CheckpointReader one(path("off/" + name)), other(path("on/" + name));
    EXPECT_EQ(WholeState(one), WholeState(other)) << name;
  }
}

TEST_F(SavingRun, MaySkipWhatComesTooSoon) {
  RunConfig config = options(30);
  config.async_checkpoint = "on";
  config.busy_checkpoint = "skip";
  config.checkpoint_freq = {"1"};
  RunTrace trace = train(config);
  std::set<std::string> saved = checkpoints();
  EXPECT_TRUE(saved.contains("llama_v2-30steps"));
  size_t skipped = 0;
  for (size_t at = 0; (at = trace.log.find("No checkpoint of step", at)) != std::string::npos; ++at)
    ++skipped;
  EXPECT_EQ(saved.size() + skipped, 30u);
  for (const std::string& name : saved) EXPECT_NO_THROW(CheckpointReader(path("ckpt/" + name)));
}

}  // namespace
}  // namespace tessera
