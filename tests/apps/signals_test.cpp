// A training process from outside: signals, a full disk, the time to its first step.
#include <gtest/gtest.h>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class Signals : public ProgramTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Each, Signals, testing::Values(SIGINT, SIGTERM), [](const auto& test) {
  return std::string(test.param == SIGINT ? "SIGINT" : "SIGTERM");
});

TEST_P(Signals, FinishTheStepSaveAndExit143) {
  Words job =
      train({"--train_batch_size", "16", "--max_context_width", "32", "--epochs", "1000000"});
  Words saving{"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt"};
  pid_t child = start(job + saving + Words{"--max_steps", "1000000", "--metrics_file", "first"});
  wait_for("first", "\"batch\":5,");
  ::kill(child, GetParam());
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143) << result.err;
  Words first = losses("first");
  auto done = static_cast<std::ptrdiff_t>(first.size());
  expect_contains(result.err, cat("Interrupted after step ", done, "; saved."));
  EXPECT_EQ(names("ckpt"), std::set<std::string>{cat("llama_v2-", done, "steps")});

  std::string steps = cat(done + 5);
  EXPECT_EQ(run(job + saving + Words{"--max_steps", steps, "--metrics_file", "second"}).status, 0);
  EXPECT_EQ(run(job + Words{"--max_steps", steps, "--metrics_file", "straight"}).status, 0);
  Words straight = losses("straight");
  EXPECT_EQ(first, (Words{straight.begin(), straight.begin() + done}));
  EXPECT_EQ(losses("second"), (Words{straight.begin() + done, straight.end()}));
}

TEST_P(Signals, WithoutACheckpointDirectoryNothingIsClaimed) {
  pid_t child =
      start(train({"--epochs", "1000000", "--max_steps", "1000000", "--metrics_file", "m"}));
  wait_for("m", "\"batch\":5,");
  ::kill(child, GetParam());
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143);
  expect_contains(result.err, "nothing saved: there is no --checkpoint_dir");
}

class Process : public ProgramTest {};

TEST_F(Process, ASecondInterruptDoesNotWaitForTheStep) {
  // One step of this takes many seconds.
  pid_t child = start(train({"--cpu_isa", "portable", "--threads", "1", "--hidden_width", "512",
                             "--num_layers", "8", "--train_batch_size", "64", "--max_context_width",
                             "256", "--max_steps", "2", "--checkpoint_dir", "ckpt"}));
  wait_for(".err", "Training on");
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(child, SIGINT);
  }
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 128 + SIGINT) << result.err;
  EXPECT_TRUE(names("ckpt").empty());
}

TEST_F(Process, AFullDiskIsAWarningAndTheOldCheckpointStays) {
  Words saving{"--checkpoint_dir",  "ckpt", "--resume_from_checkpoint", "ckpt",
               "--checkpoint_freq", "2"};
  ASSERT_EQ(run(train(saving + Words{"--max_steps", "3", "--num_kept_checkpoints", "1"})).status,
            0);
  ProgramResult full = run(train(saving + Words{"--max_steps", "7", "--metrics_file", "m"}), [] {
    rlimit limit{64 << 10, 64 << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
  });
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(losses("m").size(), 4u);  // it went on to the end
  expect_contains(full.err, "Checkpoint failed, training goes on: cannot write");
  expect_contains(full.message(), "its last checkpoint could not be written to 'ckpt'");
  EXPECT_EQ(names("ckpt"), std::set<std::string>{"llama_v2-3steps"});
  ProgramResult again = run(train(saving + Words{"--max_steps", "7"}));
  EXPECT_EQ(again.status, 0);
  expect_contains(again.err, "Checkpoint loaded from ckpt/llama_v2-3steps");
}

// The shape of the quickstart's model; no gate, since the machine may be busy.
TEST_F(Process, TimeToTheFirstStepIsPrinted) {
  Words job =
      Words{"train"} + Words{"--model_type",        "llama_v2", "--hidden_width",     "256",
                             "--num_layers",        "8",        "--num_heads",        "8",
                             "--intermediate_size", "768",      "--vocab_size",       "8192",
                             "--max_context_width", "256",      "--train_batch_size", "4",
                             "--dataset",           "text.txt", "--tokenizer",        "byte",
                             "--max_steps",         "1",        "--run_validation",   "0"};
  ProgramResult cold = run(job), cached = run(job);
  EXPECT_EQ(cold.status, 0) << cold.err;
  EXPECT_EQ(cached.status, 0);
  expect_contains(cold.err, "Tokenized training text");
  expect_lacks(cached.err, "Tokeniz");
  size_t at = cached.err.find("First step done ");
  ASSERT_NE(at, std::string::npos);
  std::string line = cached.err.substr(at, cached.err.find('\n', at) - at);
  std::printf("one step of 1024 tokens, data cached: %s; whole process %.2f s\n", line.c_str(),
              cached.seconds);
}

}  // namespace
}  // namespace tessera
