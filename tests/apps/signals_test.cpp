// A training process from outside: signals, a full disk, the time to its first step.
#include <gtest/gtest.h>

#include "base/interruption.h"
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class Signals : public ProgramTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Each, Signals, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1),
                         [](const auto& test) { return cat("SIG", ::sigabbrev_np(test.param)); });

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

class Process : public ProgramTest {
 protected:
  // Trains until it is told to stop.
  static Words endless(const Words& more) {
    return train({"--epochs", "1000000", "--max_steps", "1000000"}) + more;
  }
  // Sends the signal until the process ends, as an impatient user does.
  ProgramResult insist(pid_t child, int signal) {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::kill(child, signal);
    }
    return finish(child);
  }
};

TEST_F(Process, WithoutACheckpointDirectoryNothingIsClaimed) {
  pid_t child = start(endless({"--metrics_file", "m"}));
  wait_for("m", "\"batch\":5,");
  ::kill(child, SIGTERM);
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143);
  expect_contains(result.err, "nothing saved: there is no --checkpoint_dir");
}

TEST_F(Process, AnswersWithinTheStepAndASecondInterruptDoesNotWaitForIt) {
  // One step of this takes many seconds.
  Words long_step{"--cpu_isa",          "portable", "--threads",           "1",
                  "--hidden_width",     "512",      "--num_layers",        "8",
                  "--train_batch_size", "64",       "--max_context_width", "256",
                  "--max_steps",        "2"};
  struct Case {
    int signal;
    Words more;
    std::string answer;
  };
  for (const Case& c :
       {Case{SIGINT,
             {"--checkpoint_dir", "ckpt"},
             "Interrupt: finishing step 1, then saving a checkpoint. Ctrl-C (SIGINT) once "
             "more ends the process at once"},
        Case{SIGTERM,
             {},
             "Terminated: finishing step 1; without --checkpoint_dir nothing is saved. "
             "Ctrl-C (SIGINT) ends the process at once"}}) {
    std::filesystem::remove(path(".err"));
    pid_t child = start(train(long_step + c.more));
    wait_for(".err", "Training on");
    ::kill(child, c.signal);
    wait_for(".err", c.answer);
    ProgramResult result = insist(child, SIGINT);
    EXPECT_EQ(result.status, 128 + SIGINT) << result.err;
    for (const std::string& name : names("ckpt")) EXPECT_EQ(name, "run.lock");  // holds up nobody
  }
}

// Nothing can be saved when another rank has failed, and a job that goes on needs no advice.
TEST_F(Process, AnAgentSaysWithItsSignalWhyARankEnds) {
  for (const Ending ending : {Ending::kFailed, Ending::kGoesOn}) {
    const std::string own = ending == Ending::kFailed ? "failed" : "goes_on";
    pid_t child = start(endless({"--checkpoint_dir", own, "--metrics_file", own + ".json"}));
    wait_for(own + ".json", "\"batch\":5,");
    send_ending(child, SIGTERM, ending);
    const ProgramResult result = finish(child);
    EXPECT_EQ(result.status, 143) << result.err;
    expect_lacks(result.err, "Give --resume_from_checkpoint");
    if (ending == Ending::kFailed) {
      expect_lacks(result.err, "then saving a checkpoint");
    } else {
      expect_contains(result.err, "; saved. The job goes on from there");
    }
  }
}

// As when it is piped into a pager.
TEST_F(Process, ASecondInterruptDoesNotWaitForTheLog) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  pid_t child = start(endless({}), [&] { ::dup2(ends[1], 2); });
  ::close(ends[1]);
  // Until it stands in write(2, ...) for good.
  for (int stuck = 0; stuck < 200;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stuck = read_file(cat("/proc/", child, "/syscall")).starts_with("1 0x2 ") ? stuck + 1 : 0;
  }
  EXPECT_EQ(insist(child, SIGINT).status, 128 + SIGINT);
  ::close(ends[0]);
}

// As timeout(1) sends it, to the process and to its group.
TEST_F(Process, ASignalThatComesTwiceAtOnceIsOne) {
  for (double taken = 1; taken > 0.02;) {  // again where the two were not sent at once
    std::filesystem::remove(path("m"));
    pid_t child = start(endless({"--metrics_file", "m", "--checkpoint_dir", "ckpt"}));
    wait_for("m", "\"batch\":5,");
    double begin = monotonic_seconds();
    for (int i = 0; i < 2; ++i) ::kill(child, SIGINT);
    taken = monotonic_seconds() - begin;
    ProgramResult result = finish(child);
    if (taken <= 0.02) {
      EXPECT_EQ(result.status, 143) << result.err;
    }
  }
}

TEST_F(Process, WhatTheParentIgnoresIsIgnored) {
  pid_t child = start(endless({"--metrics_file", "m", "--checkpoint_dir", "ckpt"}), [] {
    ::signal(SIGHUP, SIG_IGN);  // nohup
    ::signal(SIGINT, SIG_IGN);  // a shell's background job
  });
  wait_for("m", "\"batch\":5,");
  for (int signal : {SIGHUP, SIGINT, SIGINT}) ::kill(child, signal);
  size_t done = losses("m").size();
  wait_for("m", cat("\"batch\":", done + 50, ","));
  ::kill(child, SIGTERM);
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143) << result.err;
  expect_lacks(result.err, "Hangup");
}

TEST_F(Process, GoesOnWhenNobodyReadsItsLog) {
  ProgramResult result = run(train({"--max_steps", "30", "--metrics_file", "m"}), [] {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(126);
    ::close(ends[0]);
    ::dup2(ends[1], 2);
  });
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(losses("m").size(), 30u);
}

TEST_F(Process, ValidationIsGivenUpAndTheStepBeforeItSaved) {
  write("held_out.txt", made_up_text(400'000));  // validation takes far longer than this test
  pid_t child = start(endless({"--validation_dataset", "held_out.txt", "--validation_freq", "1",
                               "--validation_batches", "1000000", "--val_batch_size", "1",
                               "--checkpoint_dir", "ckpt", "--metrics_file", "m"}));
  wait_for("m", "\"batch\":0,");
  ::kill(child, SIGUSR1);
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 143) << result.err;
  expect_contains(result.err, "Interrupted after step 1; saved.");
  expect_lacks(result.err, "Validation loss");
  EXPECT_EQ(names("ckpt"), std::set<std::string>{"llama_v2-1steps"});
}

TEST_F(Process, ATokenCacheThatIsCutShortIsAnError) {
  pid_t child = start(endless({"--metrics_file", "m", "--cache_dir", "cache"}));
  wait_for("m", "\"batch\":5,");
  std::filesystem::resize_file(path(cat("cache/", *names("cache").begin())), 100);
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), ": another program has cut it short");
  ProgramResult again = run(train({"--max_steps", "2", "--cache_dir", "cache"}));
  EXPECT_EQ(again.status, 0);
  expect_contains(again.err, "is damaged");
}

TEST_F(Process, LinesThatAFullDiskSwallowsAreCounted) {
  Words recorded{"--max_steps", "5", "--metrics_file", "/dev/full", "--hash_file", "/dev/full"};
  ProgramResult result = run(train(recorded));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "cannot write metrics to '/dev/full': No space left on device");
  expect_contains(result.err, "cannot write hashes to '/dev/full': No space left on device");
  result = run(train({"--max_steps", "5", "--metrics_file", "m"}),
               [] { ::dup2(::open("/dev/full", O_WRONLY), 2); });
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(losses("m").size(), 5u);
  expect_contains(result.out, "lines are missing here: No space left on device");
  // Nor does it matter that this cannot be said.
  result = run(train({"--max_steps", "5"}), [] {
    for (int stream : {1, 2}) ::dup2(::open("/dev/full", O_WRONLY), stream);
  });
  EXPECT_EQ(result.status, 0);
}

TEST_F(Process, AFullDiskIsAWarningAndTheOldCheckpointStays) {
  Words saving{"--checkpoint_dir",  "ckpt", "--resume_from_checkpoint", "ckpt",
               "--checkpoint_freq", "2"};
  ASSERT_EQ(run(train(saving + Words{"--max_steps", "3", "--num_kept_checkpoints", "1"})).status,
            0);
  auto fill_the_disk = [] {
    rlimit limit{64 << 10, 64 << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  ProgramResult full =
      run(train(saving + Words{"--max_steps", "7", "--metrics_file", "m"}), fill_the_disk);
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(losses("m").size(), 4u);  // it went on to the end
  expect_contains(full.err, "Checkpoint failed, training goes on: cannot write");
  expect_contains(full.message(), "its last checkpoint could not be written to 'ckpt'");
  EXPECT_EQ(names("ckpt"), std::set<std::string>{"llama_v2-3steps"});
  // One that is asked to end has not saved either: 143 would say so.
  pid_t child = start(endless({"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt",
                               "--metrics_file", "interrupted"}),
                      fill_the_disk);
  wait_for("interrupted", "\"batch\":5,");
  ::kill(child, SIGTERM);
  ProgramResult interrupted = finish(child);
  EXPECT_EQ(interrupted.status, 1);
  expect_contains(interrupted.err, "Checkpoint failed: cannot write");
  expect_contains(interrupted.message(), "tessera: interrupted after step ");
  expect_contains(interrupted.message(), "its last checkpoint could not be written to 'ckpt'");
  EXPECT_EQ(names("ckpt"), std::set<std::string>{"llama_v2-3steps"});
  ProgramResult again = run(train(saving + Words{"--max_steps", "7"}));
  EXPECT_EQ(again.status, 0);
  expect_contains(again.err, "Checkpoint loaded from ckpt/llama_v2-3steps");
}

// What a request to end has left out is made up for, and the best loss is recorded.
TEST_F(Process, AValidationThatWasGivenUpIsDoneByTheRunThatGoesOn) {
  write("long.txt", made_up_text(1'000'000));
  const Words words =
      train({"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt", "--validation_dataset",
             "long.txt", "--validation_batches", "100000", "--validation_freq", "2",
             "--best_val_loss", "inf", "--metrics_file", "m"});
  auto record = [&](const std::string& checkpoint) {
    return nlohmann::json::parse(read_file(path("ckpt/" + checkpoint + "/run.json")));
  };
  for (const std::string steps : {"2", "4"}) {  // behind the last step, and in between
    pid_t child = start(
        words + Words{"--max_steps", steps}, [] {}, steps);
    wait_for(steps + ".err", "A validation reads ");
    ::kill(child, SIGTERM);
    const ProgramResult result = finish(child);
    EXPECT_EQ(result.status, 143) << result.err;
  }
  EXPECT_EQ(losses("m").size(), 2u);
  EXPECT_TRUE(record("llama_v2-2steps").at("validation_unfinished").get<bool>());
  const ProgramResult result =
      run(words + Words{"--max_steps", "3", "--validation_batches", "20", "--run_validation", "0"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "Batch 1 Validation loss: ");
  for (const char* checkpoint : {"llama_v2-2steps", "llama_v2-3steps"}) {
    EXPECT_FALSE(record(checkpoint).contains("validation_unfinished"));
    EXPECT_EQ(record(checkpoint).at("best_validation").at("checkpoint"), "llama_v2-2steps");
  }
  EXPECT_EQ(names("ckpt"), (std::set<std::string>{"llama_v2-2steps", "llama_v2-3steps"}));
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
