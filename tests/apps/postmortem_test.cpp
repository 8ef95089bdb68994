// Jobs in which a rank hangs, is killed or crashes, and what tessera postmortem says of them.
#include <gtest/gtest.h>

#include "base/thread_stacks.h"
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

class PostmortemCommand : public Ranks {
 protected:
  using Json = nlohmann::json;

  // Two ranks that train until they are told to stop, with their rings in flight/.
  static Words endless(const Words& more = {}) {
    return job(2, Words{"--epochs", "1000000", "--max_steps", "1000000", "--metrics_file", "m",
                        "--flight_recorder_dir", "flight", "--num_layers", "8"} +
                      more);
  }
  pid_t start_job(const Words& more = {}) {
    const pid_t agent = start(
        Ranks::agent(2, endless(more)), [] {}, "agent");
    wait_for("m", "\"batch\":3,");
    return agent;
  }
  Json postmortem() {
    const ProgramResult result = run({"postmortem", "flight", "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return Json::parse(result.out);
  }
  pid_t process_of(int rank) { return postmortem()["ranks"][static_cast<size_t>(rank)]["process"]; }
  // Stops a rank in a layer, so that the other waits for it.
  void stop_in_a_layer(pid_t rank) {
    for (int i = 0; i < 200; ++i) {
      ::kill(rank, SIGSTOP);
      // Less long than the limits of the jobs: the other rank would give it up.
      for (const double end = monotonic_seconds() + 2; monotonic_seconds() < end;) {
        const Json found = postmortem();
        if (!found["ranks"][1].contains("layer")) break;
        if (found["culprits"] == Json({1}) && !found["waits"].empty()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      ::kill(rank, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    ADD_FAILURE() << "never stopped in a layer: " << postmortem().dump(1);
  }
};

TEST_F(PostmortemCommand, OfARankThatHangsNamesOpAndLayer) {
  const pid_t agent = start_job();
  const pid_t stopped = process_of(1);
  stop_in_a_layer(stopped);
  const Json hang = postmortem();
  EXPECT_EQ(hang["waits"][0]["ranks"], Json({0}));
  EXPECT_EQ(hang["waits"][0]["missing"], Json({1}));
  const Json& culprit = hang["ranks"][1];
  expect_contains(culprit["state"].get<std::string>(), "stopped");
  expect_contains(culprit["in"].get<std::string>(), " in layers.");
  EXPECT_GE(culprit["layer"].get<int>(), 0);

  // Reports are asked for, and the job goes on.
  ::kill(agent, SIGUSR2);
  wait_for("flight/attempt_0/rank_0.report", "reason: SIGUSR2");
  wait_for("agent.err", "SIGUSR2: passed on to the ranks");
  const ProgramResult page = run({"postmortem", "flight"});
  EXPECT_EQ(page.status, 0) << page.err;
  expect_contains(page.out, "for rank 1 in ");
  expect_contains(page.out, "rank 1, stopped (SIGSTOP or a debugger): ");
  expect_contains(page.out, "Last events of rank 1");
  if (!has_sanitizer()) expect_contains(page.out, "thread 'main'");
  ::kill(stopped, SIGCONT);
  wait_for("flight/attempt_0/rank_1.report", "reason: SIGUSR2");
  const size_t done = losses("m").size();
  wait_for("m", cat("\"batch\":", done + 5, ","));
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(agent).status, 143);
  const Json ended = postmortem();
  for (const Json& rank : ended["ranks"]) EXPECT_EQ(rank["state"], "interrupted");
  EXPECT_TRUE(ended["culprits"].empty());
}

TEST_F(PostmortemCommand, OfARankThatWasKilled) {
  const pid_t agent = start_job();
  ::kill(process_of(1), SIGKILL);
  const ProgramResult result = finish(agent);
  EXPECT_EQ(result.status, 128 + SIGKILL);
  expect_contains(result.err, "tessera: rank 1, ended without a word: SIGKILL, by hand or because");
  expect_contains(result.err, "tessera: more of it: tessera postmortem flight/attempt_0\n");
  const Json dead = postmortem();
  EXPECT_EQ(dead["culprits"], Json({1}));
  expect_contains(dead["ranks"][0]["state"].get<std::string>(), "failed: ");
}

// One ends itself at its time limit while it waits for the other, which goes on for a moment then.
TEST_F(PostmortemCommand, OfARankThatWasStoppedUntilTheOtherGaveUp) {
  const pid_t agent = start_job({"--step_timeout", "8", "--comm_timeout", "100"});
  stop_in_a_layer(process_of(1));
  const ProgramResult result = finish(agent);
  EXPECT_EQ(result.status, 124);
  expect_contains(result.err, "tessera: rank 0 waited ");
  expect_contains(result.err, " for rank 1 in ");
  expect_contains(result.err,
                  "tessera: rank 1, stopped (SIGSTOP or a debugger) when the job failed: ");
  expect_lacks(result.err, "SIGKILL");
}

TEST_F(PostmortemCommand, OfARankThatWasEndedBeforeItBegan) {
  const ProgramResult result = run(Ranks::agent(2, endless({"--tensor_parallel_degree", "4"})));
  EXPECT_EQ(result.status, 2);
  expect_lacks(result.err, "SIGKILL");
  expect_lacks(result.err, "more of it");  // there is nothing
}

// Its own message says it all.
TEST_F(PostmortemCommand, OfARankThatEndedItself) {
  const ProgramResult result = run(Ranks::agent(2, endless({"--dataset", "not_there.txt"})));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err, "not_there.txt");
  expect_lacks(result.err, "more of it");
}

TEST_F(PostmortemCommand, OfARankThatCrashed) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer has the handlers";
  const pid_t agent = start_job();
  ::kill(process_of(1), SIGSEGV);
  const ProgramResult result = finish(agent);
  EXPECT_EQ(result.status, 128 + SIGSEGV);
  expect_contains(result.err, "tessera: rank 1: Segmentation fault (SIGSEGV) ");
  expect_contains(result.err, "tessera: rank 1, killed by Segmentation fault (SIGSEGV): ");
  const Json dead = postmortem();
  EXPECT_EQ(dead["ranks"][1]["signal"], SIGSEGV);
  EXPECT_EQ(dead["culprits"], Json({1}));
  EXPECT_FALSE(dead["ranks"][1]["stacks"].empty());
}

// The ranks give it up at their deadline, and write where they were by themselves.
TEST_F(PostmortemCommand, OfAJobWhoseDeadlinePassed) {
  const int port = free_port();
  const Words words = endless({"--comm_timeout", "8"});
  const std::vector<pid_t> ranks{start_rank(0, 2, port, words), start_rank(1, 2, port, words)};
  wait_for("m", "\"batch\":3,");
  stop_in_a_layer(ranks[1]);
  const ProgramResult waited = finish(ranks[0]);
  EXPECT_EQ(waited.status, 1) << waited.err;
  wait_for("flight/attempt_0/rank_0.report", "reason: rank 1 did not answer rank 0 within 8 s");
  Json found = postmortem();
  EXPECT_EQ(found["culprits"], Json({1}));
  EXPECT_TRUE(found["ranks"][1].contains("layer"));
  EXPECT_TRUE(found["waits"][0]["given_up"]);
  ::kill(ranks[1], SIGCONT);
  EXPECT_EQ(finish(ranks[1]).status, 1);
  found = postmortem();
  EXPECT_EQ(found["culprits"], Json({1})) << "it came when the other had given up";
}

TEST_F(PostmortemCommand, RunsGoOnWithoutIt) {
  write("file", "");
  const ProgramResult unwritable =
      run(train({"--max_steps", "2", "--flight_recorder_dir", "file/below"}));
  EXPECT_EQ(unwritable.status, 0);
  expect_contains(unwritable.err, "the run goes on without a flight recorder");
  const ProgramResult off = run(
      train({"--max_steps", "2", "--flight_recorder_dir", "off", "--flight_recorder_size", "0"}));
  EXPECT_EQ(off.status, 0) << off.err;
  EXPECT_FALSE(exists("off"));
}

TEST_F(PostmortemCommand, SaysWhatIsWrongWithTheDirectory) {
  ProgramResult result = run({"postmortem", "nowhere"});
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "cannot read 'nowhere'");
  std::filesystem::create_directory(path("empty"));
  result = run({"postmortem", "empty"});
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "there are no rings of a flight recorder in 'empty'");
  result = run({"postmortem", "a", "b"});
  EXPECT_EQ(result.status, 2);
}

}  // namespace
}  // namespace tessera
