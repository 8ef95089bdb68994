// Data that cannot be read to the end.
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

using BrokenData = TrainingTest;

// What was learned before is saved, and goes on behind it when the data are as they should be.
TEST_F(BrokenData, AnErrorInAStreamLosesNoStep) {
  // Behind what is looked at before the first step.
  const auto write_data = [&](bool broken) {
    std::string lines;
    for (int i = 0; i < 200; ++i) {
      std::string line =
          nlohmann::json{{"text", made_up_text(400, static_cast<uint64_t>(i))}}.dump();
      if (broken && i == 150) line.back() = ']';
      lines += line + "\n";
    }
    write("lines.jsonl", lines);
  };
  RunConfig config = options(60);
  config.dataset = path("lines.jsonl");
  config.checkpoint_dir.clear();
  config.streaming = "on";
  config.data_lanes = 2;
  config.shuffle_buffer = 2;
  config.packing = "rows";
  config.gradient_accumulation_steps = 2;
  write_data(false);
  const RunTrace whole = train(config);
  config.checkpoint_dir = {path("ckpt")};
  write_data(true);
  expect_contains(failure(config), "lines.jsonl', line 151: ");
  const size_t steps = failed().losses.size();
  EXPECT_GT(steps, 10u);
  EXPECT_LT(steps, 60u);
  EXPECT_EQ(checkpoints(), std::set{cat("llama_v2-", steps, "steps")});
  EXPECT_EQ(log().find("Interrupted"), std::string::npos);
  write_data(false);
  config.resume_from_checkpoint = config.checkpoint_dir;
  EXPECT_EQ(train(config).fingerprint, whole.fingerprint);
}

TEST_F(BrokenData, AnIdBehindTheVocabularyLosesNoStep) {
  std::string ids;
  for (char c : made_up_text(800)) ids += {c, '\0'};
  write("right.bin", ids);
  const size_t middle = ids.size() / 4 * 2;
  ids[middle] = '\x60';
  ids[middle + 1] = '\xea';
  write("ids.bin", ids);
  RunConfig config = options(1000);
  config.dataset = path("ids.bin");
  expect_contains(failure(config), "60000");
  const size_t steps = failed().losses.size();
  EXPECT_GT(steps, 0u);
  EXPECT_EQ(checkpoints(), std::set{cat("llama_v2-", steps, "steps")});

  config = options(6);
  config.dataset = path("right.bin");
  config.checkpoint_dir = {path("other")};
  config.validation_dataset = path("ids.bin");
  config.validation_freq = 4;
  config.validation_batches = 1000;
  expect_contains(failure(config), "60000");
  EXPECT_EQ(checkpoints("other"), std::set<std::string>{"llama_v2-4steps"});
  config.validation_dataset = path("right.bin");
  config.resume_from_checkpoint = config.checkpoint_dir;
  const RunTrace rest = train(config);
  EXPECT_EQ(rest.losses.size(), 2u);
  EXPECT_EQ(rest.validations.size(), 2u);  // that of step 4 as well
  config.eval_only = true;
  config.validation_dataset = path("ids.bin");
  expect_contains(failure(config), "60000");
}

}  // namespace
}  // namespace tessera
