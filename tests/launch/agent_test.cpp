// The agent on one node: environment, output, signals, failures, restarts, and that nothing is
// left.
#include <sys/resource.h>

#include <algorithm>
#include <set>

#include "base/thread_pool.h"
#include "tests/launch/agent_fixture.h"

namespace tessera {
namespace {

using Agent = AgentTest;

TEST_F(Agent, GivesEachRankItsPlace) {
  Result result = run({"--nproc-per-node=3", "--standalone", "train", "print",
                       "%RANK/%WORLD_SIZE %LOCAL_RANK/%LOCAL_WORLD_SIZE %MASTER_ADDR "
                       "%TESSERA_ATTEMPT %TESSERA_AGENT_STORE",
                       "--threads", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (int rank = 0; rank < 3; ++rank) {
    expect_contains(result.out, cat("[rank ", rank, "] ", rank, "/3 ", rank, "/3 127.0.0.1 0 1\n"));
  }
  expect_contains(result.out, "[rank 0] option --threads 2\n");
  expect_contains(result.err, "master_addr=127.0.0.1 master_port=");
  expect_contains(result.err, " ranks=0-2 world_size=3 attempt=0");
}

TEST_F(Agent, TheTokenIsSecretAndNew) {
  auto token = [&] {
    Result result = run({"train", "print", "token=%TESSERA_JOB_TOKEN", "--threads", "1"});
    size_t at = result.out.find("token=");
    std::string text = at == std::string::npos ? "" : result.out.substr(at + 6, 64);
    EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
    expect_lacks(result.err, text);
    return text;
  };
  EXPECT_NE(token(), token());
}

TEST_F(Agent, SharesTheCoresUnlessToldOtherwise) {
  Result result = run({"--nproc_per_node", "2", "train", "print", "x"});
  expect_contains(result.out, cat("option --threads ", std::max(1, available_cores() / 2), "\n"));
  Result many = run({"--nproc_per_node", cat(available_cores() + 1), "train", "--threads=1", "x"});
  EXPECT_EQ(many.status, 0);
  expect_contains(many.err, cat(available_cores() + 1, " ranks on ", available_cores()));
}

TEST_F(Agent, RunsAnyProgram) {
  Result result = run({"--nproc_per_node", "2", "--", "sh", "-c", "echo $RANK; echo bad >&2"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "[rank 1] 1\n");
  expect_contains(result.err, "[rank 0] bad\n");
  std::string absolute = LAUNCH_PROGRAM;
  expect_contains(run({absolute, "train", "print", "x%RANK"}).out, "[rank 0] x0\n");
}

TEST_F(Agent, LinesStayWhole) {
  // Parts of lines, no line end at the end, and more than a pipe holds.
  Result result = run({"--nproc_per_node", "2", "--", "sh", "-c",
                       "for i in 1 2 3 4 5; do printf a; sleep 0.01; printf 'b\\n'; done; "
                       "head -c 200000 /dev/zero | tr '\\0' x; printf '\\nend'"});
  EXPECT_EQ(result.status, 0) << result.err;
  std::map<std::string, int> counts;
  std::string text(result.out);
  for (std::string_view line : split(trim(text), '\n')) {
    EXPECT_TRUE(line.starts_with("[rank 0] ") || line.starts_with("[rank 1] ")) << line;
    ++counts[std::string(line.substr(9).substr(0, 3))];
  }
  EXPECT_EQ(counts["ab"], 10);
  EXPECT_EQ(counts["end"], 2);
  EXPECT_EQ(std::ranges::count(result.out, 'x'), 400'000);
}

TEST_F(Agent, OutputGoesToFiles) {
  Words worker{"train", "print", "out %RANK", "error", "err %RANK", "--threads", "1"};
  Result quiet = run(Words{"--nproc_per_node=2", "--log_dir=logs", "--rdzv_id=7"} + worker);
  EXPECT_EQ(quiet.out, "");
  expect_lacks(quiet.err, "err 0");
  expect_contains(read_file(path("logs/7/attempt_0/rank_1.out.log")), "out 1\n");
  EXPECT_EQ(read_file(path("logs/7/attempt_0/rank_0.err.log")), "err 0\n");

  Result mixed = run(
      Words{"--nproc_per_node=2", "--log_dir=more", "--redirects=0:1", "--tee", "1:3"} + worker);
  expect_lacks(mixed.out, "out 0");
  expect_contains(mixed.err, "[rank 0] err 0\n");
  expect_contains(mixed.out, "[rank 1] out 1\n");
  expect_contains(read_file(path("more/attempt_0/rank_0.out.log")), "out 0\n");
  EXPECT_FALSE(std::filesystem::exists(path("more/attempt_0/rank_0.err.log")));
  EXPECT_EQ(read_file(path("more/attempt_0/rank_1.err.log")), "err 1\n");
}

TEST_F(Agent, AFailureEndsAllAndIsNamed) {
  Result result = run({"--nproc_per_node=3", "train", "rank", "1", "print", "on rank %RANK",
                       "error", "what went wrong", "exit", "7", "end", "hang"});
  EXPECT_EQ(result.status, 7);
  expect_contains(result.err, "tessera: rank 1 failed first: exit status 7; its last lines:");
  expect_contains(result.err, "\n    what went wrong");
  expect_no_process_left();
}

// Long before the others have ended.
TEST_F(Agent, AFailureIsToldAtOnce) {
  pid_t agent = start({"--nproc_per_node=2", "train", "ignore_term", "rank", "1", "on_term", "7",
                       "end", "print", "pid %RANK %PID", "hang"});
  const pid_t stays = number_behind(wait_for("a.out", "pid 0 "), "pid 0 ");
  ::kill(number_behind(wait_for("a.out", "pid 1 "), "pid 1 "), SIGTERM);
  const std::string told = "tessera: rank 1 failed first: exit status 7";
  wait_for("a.err", told);
  ::kill(stays, SIGKILL);
  Result result = finish(agent);
  EXPECT_EQ(result.status, 7);
  expect_lacks(result.err, "do not end");  // it was still there
  EXPECT_EQ(result.err.find("rank 1 failed first", result.err.find(told) + told.size()),
            result.err.npos);
}

TEST_F(Agent, AKilledWorkerEndsAll) {
  pid_t agent = start({"--nproc_per_node=2", "train", "child", "print", "pid %RANK %PID", "hang"});
  wait_for("a.out", "pid 0 ");
  pid_t worker = number_behind(wait_for("a.out", "pid 1 "), "pid 1 ");
  ::kill(worker, SIGKILL);
  Result result = finish(agent);
  EXPECT_EQ(result.status, 128 + SIGKILL);
  expect_contains(result.err,
                  "rank 1 failed first: killed by signal 9 (Killed), by hand or because");
  expect_no_process_left();
}

TEST_F(Agent, NothingIsLeftOfAKilledAgent) {
  // Workers that ignore SIGTERM, each with a child that does so too.
  pid_t agent =
      start({"--nproc_per_node=2", "train", "ignore_term", "child", "print", "pid %RANK ", "hang"});
  wait_for("a.out", "pid 0 ");
  wait_for("a.out", "pid 1 ");
  EXPECT_EQ(processes_left(), 6);  // agent, guard, two workers, their children
  ::kill(agent, SIGKILL);
  EXPECT_EQ(finish(agent).status, 128 + SIGKILL);
  expect_no_process_left();
}

TEST_F(Agent, AnInterruptionLetsWorkersSave) {
  for (int signal : {SIGTERM, SIGINT}) {
    pid_t agent = start({"--nproc_per_node=2", "--max_restarts=3", "--", "sh", "-c",
                         "trap 'sleep 0.1; echo saved; exit 143' TERM INT; echo ready; while :; do "
                         "sleep 0.02; done"});
    wait_for("a.out", "[rank 0] ready");
    wait_for("a.out", "[rank 1] ready");
    ::kill(agent, signal);
    Result result = finish(agent);
    EXPECT_EQ(result.status, 143) << result.err;
    expect_contains(result.out, "[rank 0] saved");
    expect_contains(result.out, "[rank 1] saved");
    expect_lacks(result.err, "failed");
    expect_lacks(result.err, "Restart");
  }
}

TEST_F(Agent, AFailureOnTheWayOutIsTold) {
  pid_t agent =
      start({"--nproc_per_node=2", "--max_restarts=1", "train", "rank", "0", "on_term", "9",
             "print", "ready 0", "hang", "end", "on_term", "143", "print", "ready 1", "hang"});
  wait_for("a.out", "ready 0");
  wait_for("a.out", "ready 1");
  ::kill(agent, SIGTERM);
  Result result = finish(agent);
  EXPECT_EQ(result.status, 9);
  expect_contains(result.out, "[rank 1] saved");
  expect_contains(result.err, "tessera: rank 0 failed first: exit status 9");
  expect_lacks(result.err, "Restart");
}

TEST_F(Agent, AWorkerThatWasInterruptedItselfEndsTheJobInGoodOrder) {
  pid_t agent = start({"--nproc_per_node=2", "--max_restarts=2", "train", "on_term", "143", "print",
                       "pid %RANK %PID", "hang"});
  wait_for("a.out", "pid 1 ");
  ::kill(number_behind(wait_for("a.out", "pid 0 "), "pid 0 "), SIGTERM);
  Result result = finish(agent);
  EXPECT_EQ(result.status, 143);
  expect_contains(result.out, "[rank 1] saved");
  expect_lacks(result.err, "failed");
}

TEST_F(Agent, UserSignalsAskForTheEndAsABatchSystemMeansThem) {
  pid_t agent = start({"--nproc_per_node=2", "train", "print", "ready", "hang"});
  wait_for("a.out", "[rank 0] ready");
  wait_for("a.out", "[rank 1] ready");
  ::kill(agent, SIGUSR1);
  wait_for("a.out", "[rank 0] got usr1");
  wait_for("a.out", "[rank 1] got usr1");
  wait_for("a.err", "User defined signal 1: workers finish their step, save and exit");
  ::kill(agent, SIGHUP);  // these workers stay: once more, by a signal that ends them
  EXPECT_EQ(finish(agent).status, 128 + SIGHUP);
}

TEST_F(Agent, WorkersThatCannotSaveYetEndInGoodOrderToo) {
  for (int signal : {SIGHUP, SIGINT, SIGTERM}) {
    pid_t agent = start({"--nproc_per_node=2", "train", "print", "ready", "hang"});
    wait_for("a.out", "[rank 0] ready");
    wait_for("a.out", "[rank 1] ready");
    ::kill(agent, signal);  // which ends the workers by itself
    EXPECT_EQ(finish(agent).status, 143) << signal;
  }
}

TEST_F(Agent, WhatTheParentIgnoresIsIgnored) {
  auto ignoring = [&] {
    ::signal(SIGHUP, SIG_IGN);
    ::signal(SIGCHLD, SIG_IGN);
    pid_t agent = start({"train", "print", "ready", "hang"});
    ::signal(SIGHUP, SIG_DFL);
    ::signal(SIGCHLD, SIG_DFL);
    return agent;
  };
  pid_t agent = ignoring();
  wait_for("a.out", "ready");
  ::kill(agent, SIGHUP);
  ::kill(agent, SIGTERM);
  Result result = finish(agent);
  EXPECT_EQ(result.status, 128 + SIGTERM);
  expect_lacks(result.err, "Hangup");
}

TEST_F(Agent, ASecondInterruptKillsWhoIgnoresIt) {
  pid_t agent = start({"--", "sh", "-c", "trap '' INT; echo ready; while :; do sleep 1; done"});
  wait_for("a.out", "ready");
  ::kill(agent, SIGINT);
  wait_for("a.err", "workers finish their step");
  // Until it has taken one: those right behind the first belong to that.
  EXPECT_TRUE(comes_true([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::kill(agent, SIGINT);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(agent), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid != 0;
  }));
  Result result = finish(agent);
  EXPECT_EQ(result.status, 128 + SIGKILL);
  expect_contains(result.err, "1 workers do not end: killing them");
}

TEST_F(Agent, WorkersStopAndContinueWithIt) {
  pid_t agent = start({"train", "print", "pid %PID", "sleep", "1", "print", "done", "hang"});
  pid_t worker = number_behind(wait_for("a.out", "pid "), "pid ");
  auto state = [&](pid_t pid) {
    std::string text = read_file(cat("/proc/", pid, "/stat"));
    return text.substr(text.rfind(')') + 2, 1);
  };
  ::kill(agent, SIGTSTP);
  int status = 0;
  EXPECT_EQ(::waitpid(agent, &status, WUNTRACED), agent);
  EXPECT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(comes_true([&] { return state(worker) == "T"; }));
  ::kill(agent, SIGCONT);
  wait_for("a.out", "done");
  ::kill(agent, SIGTERM);
  EXPECT_EQ(finish(agent).status, 128 + SIGTERM);
}

TEST_F(Agent, AFullLogFileIsSaidAndNothingIsLost) {
  make_directories(path("logs/attempt_0"));
  std::filesystem::create_symlink("/dev/full", path("logs/attempt_0/rank_1.out.log"));
  Result result = run({"--nproc_per_node=2", "--log_dir=logs", "train", "print", "one %RANK",
                       "sleep", "50", "print", "two %RANK", "--threads", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "[rank 1] one 1\n[rank 1] two 1\n[rank 1] option --threads 1\n");
  expect_contains(result.err,
                  "cannot write 'logs/attempt_0/rank_1.out.log': No space left on device");
  EXPECT_EQ(read_file(path("logs/attempt_0/rank_0.out.log")), "one 0\ntwo 0\noption --threads 1\n");
}

TEST_F(Agent, RestartsFromTheCheckpoint) {
  Result result = run({"--nproc_per_node=2",
                       "--max_restarts=3",
                       "train",
                       "print",
                       "attempt %TESSERA_ATTEMPT",
                       "--checkpoint-dir",
                       "ckpt",
                       "attempt",
                       "0",
                       "rank",
                       "1",
                       "exit",
                       "5",
                       "end",
                       "hang",
                       "end",
                       "attempt",
                       "1",
                       "rank",
                       "0",
                       "raise",
                       "9",
                       "end",
                       "hang",
                       "end"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "[rank 0] attempt 2\n");
  expect_contains(result.out, "[rank 1] attempt 2\n");
  expect_lacks(result.out, "attempt 3");
  expect_contains(result.err,
                  "this attempt goes on from the newest checkpoint of this job in ckpt");
  expect_contains(result.err, "rank 1 failed first: exit status 5");
  expect_contains(result.err, "rank 0 failed first: killed by signal 9");
  expect_contains(result.err, "Restart 1 of at most 3 in 0.5 s");
  expect_contains(result.err, "Restart 2 of at most 3 in 1.0 s");
}

// By its identity the ranks know the checkpoints of their job.
TEST_F(Agent, TheJobKeepsItsIdentityOverRestarts) {
  auto identities = [&] {
    Result result = run({"--nproc_per_node=2", "--max_restarts=1", "train", "print",
                         "job=%TESSERA_JOB_ID.", "attempt", "0", "exit", "1", "end"});
    std::set<std::string> found;
    for (std::string_view line : split(result.out, '\n')) {
      if (size_t at = line.find("job="); at != std::string_view::npos)
        found.emplace(line.substr(at + 4, line.rfind('.') - at - 4));
    }
    expect_contains(result.err, "Restart 1");
    return found;
  };
  auto one = identities(), other = identities();
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.begin()->size(), 32u);
  EXPECT_EQ(one.begin()->find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(one, other);
}

TEST_F(Agent, AnInterruptionEndsThePauseBeforeARestart) {
  pid_t agent = start({"--max_restarts=9", "train", "exit", "1"});
  wait_for("a.err", "Restart 4 of at most 9 in 4.0 s");  // longer than this test may be late by
  ::kill(agent, SIGTERM);
  Result result = finish(agent);
  EXPECT_EQ(result.status, 143);
  expect_lacks(result.err, "Restart 5");
}

TEST_F(Agent, RestartsNoMoreThanAllowed) {
  Result result =
      run({"--max_restarts=2", "train", "print", "attempt %TESSERA_ATTEMPT", "exit", "4"});
  EXPECT_EQ(result.status, 4);
  expect_contains(result.out, "attempt 2\n");
  expect_lacks(result.out, "attempt 3");
  expect_contains(result.err, "this attempt does not continue the last one");
  // A wrong command line stays wrong.
  Result usage =
      run({"--max_restarts=2", "train", "print", "attempt %TESSERA_ATTEMPT", "exit", "2"});
  EXPECT_EQ(usage.status, 2);
  expect_lacks(usage.out, "attempt 1");
}

TEST_F(Agent, RefusesWhatItCannotStart) {
  struct Case {
    Words words;
    int status;
    std::string message;
  };
  for (const Case& c : {Case{{"train.py", "--x"}, 2, "'train.py' is a Python script"},
                        Case{{"trian"}, 2, "did you mean 'train'?"},
                        Case{{"./nothing"}, 2, "'./nothing' is neither a command of tessera nor"},
                        Case{{"--rdzv_endpoint", "192.0.2.1:80", "train"},
                             1,
                             "no interface of this host has the address"}}) {
    Result result = run(c.words);
    EXPECT_EQ(result.status, c.status) << result.err;
    expect_contains(result.err, c.message);
  }
  write_file_atomic(path("broken"), "not a program");
  std::filesystem::permissions(path("broken"), std::filesystem::perms::owner_all);
  Result broken = run({"--nproc_per_node=2", "./broken"});
  EXPECT_EQ(broken.status, 1);
  expect_contains(broken.err, "cannot execute './broken': Exec format error");
}

TEST_F(Agent, TooFewOpenFilesAreSaidBeforeAnythingStarts) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 64;
  ::setrlimit(RLIMIT_NOFILE, &few);
  const pid_t agent = start({"--nproc_per_node=40", "--tee=3", "--log_dir=logs", "true"});
  ::setrlimit(RLIMIT_NOFILE, &before);
  const Result result = finish(agent);
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err, "to start 40 workers takes 1");
  expect_contains(result.err, " open files, and this process may have 64: raise that");
  expect_contains(result.err, "with `ulimit -n 512`");
}

}  // namespace
}  // namespace tessera
