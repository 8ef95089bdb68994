// Tasks of srun, by the variables that it sets; tools/slurm_jobs has them started by Slurm itself.
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

class SlurmTasks : public Ranks {
 protected:
  // Task `task` of `tasks`, on nodes with one each if `nodes` is more than 1.
  static Variables variables(int task, int tasks, int nodes = 1) {
    return {{"SLURM_JOB_ID", cat(::getpid())},
            {"SLURM_STEP_ID", "0"},
            {"SLURM_STEP_NUM_TASKS", cat(tasks)},
            {"SLURM_PROCID", cat(task)},
            {"SLURM_STEP_NUM_NODES", cat(nodes)},
            {"SLURM_NODEID", cat(nodes > 1 ? task : 0)},
            {"SLURM_LOCALID", cat(nodes > 1 ? 0 : task)},
            {"SLURM_STEP_NODELIST", nodes > 1 ? "localhost,node2" : "localhost"}};
  }

  pid_t start_task(const Words& words, const Variables& all, const std::string& tag) {
    return start(
        words,
        [&] {
          for (const auto& [name, value] : all) ::setenv(name.c_str(), value.c_str(), 1);
        },
        tag);
  }

  std::vector<ProgramResult> run_tasks(const Words& words, int tasks, int nodes = 1,
                                       const Variables& more = {}) {
    std::vector<pid_t> started;
    for (int task = 0; task < tasks; ++task) {
      Variables all = variables(task, tasks, nodes);
      all.insert(all.end(), more.begin(), more.end());
      started.push_back(start_task(words, all, cat("task", task)));
    }
    std::vector<ProgramResult> results;
    for (pid_t pid : started) results.push_back(finish(pid));
    return results;
  }

  bool token_is_left() const {
    for (const std::string& name : names(".")) {
      if (name.starts_with(".tessera-token")) return true;
    }
    return false;
  }
};

TEST_F(SlurmTasks, AreTheRanksOfOneJob) {
  run_ranks(2, job(2, {"--metrics_file", "agent"}));
  for (const ProgramResult& task : run_tasks(job(2, {"--metrics_file", "bare"}), 2))
    EXPECT_EQ(task.status, 0) << task.err;
  EXPECT_EQ(losses("bare").size(), size_t{kSteps});
  EXPECT_EQ(losses("bare"), losses("agent"));
  EXPECT_FALSE(token_is_left());
  // Agents, one a node; the environment says who they are.
  Words words = Words{"run", "--nproc_per_node", "1"} + job(2, {"--metrics_file", "nodes"});
  auto agents = run_tasks(words, 2, 2);
  for (const ProgramResult& agent : agents) EXPECT_EQ(agent.status, 0) << agent.err;
  expect_contains(agents[1].err, "node_rank=1 nnodes=2");
  EXPECT_EQ(losses("nodes"), losses("agent"));
  EXPECT_FALSE(token_is_left());
}

// What a batch script does that Slurm has put back into the queue: the same again.
TEST_F(SlurmTasks, OfARequeuedJobGoOnByThemselves) {
  Words words = job(2, {"--checkpoint_dir", "ckpt", "--checkpoint_freq", "4", "--max_steps", "4"});
  for (const ProgramResult& task : run_tasks(words, 2)) EXPECT_EQ(task.status, 0) << task.err;
  words = job(2, {"--checkpoint_dir", "ckpt", "--checkpoint_freq", "4", "--max_steps", "8"});
  auto again = run_tasks(words, 2, 1, {{"SLURM_RESTART_COUNT", "1"}});
  for (const ProgramResult& task : again) EXPECT_EQ(task.status, 0) << task.err;
  expect_contains(again[0].out + again[0].err, "Checkpoint loaded from ");
  words = Words{"run"} + job(2, {"--checkpoint_dir", "ckpt", "--max_steps", "9"});
  auto agents = run_tasks(words, 2, 2, {{"SLURM_RESTART_COUNT", "2"}});
  for (const ProgramResult& agent : agents) EXPECT_EQ(agent.status, 0) << agent.err;
  expect_contains(agents[0].out + agents[0].err, "Checkpoint loaded from ");
  expect_contains(agents[0].err, "attempt=2");
}

TEST_F(SlurmTasks, ThatDoNotFindEachOtherEndInTime) {
  // Two with one number: a pair trains, and the third says why it cannot.
  for (int twice : {0, 1}) {
    std::vector<pid_t> tasks;
    for (int task : {twice, 0, 1}) {
      tasks.push_back(start_task(job(2, {"--comm_timeout", "8"}), variables(task, 2),
                                 cat("twice", twice, "_", tasks.size())));
    }
    int failed = 0;
    std::string messages;
    for (pid_t pid : tasks) {
      ProgramResult result = finish(pid);
      failed += result.status == 1;
      messages += result.message();
    }
    EXPECT_GE(failed, 1) << messages;
    bool told = false;  // which of these depends on who came first, and whether the pair is done
    for (const char* words : {"has joined already: two processes have the same rank",
                              "has not arrived within 8 s", "found no '", "no store answered at"})
      told |= messages.find(words) != std::string::npos;
    EXPECT_TRUE(told) << messages;
  }
  // A first node that nobody knows.
  Variables lost = variables(1, 2, 2);
  lost.push_back({"SLURM_STEP_NODELIST", "no-such-node[1-2].invalid"});
  lost.push_back({"TESSERA_JOB_TOKEN", "secret"});
  for (const Words& words : {job(2), Words{"run"} + job(2)}) {
    ProgramResult result = finish(start_task(words, lost, "lost"));
    EXPECT_EQ(result.status, 1) << result.err;
    expect_contains(result.message(),
                    "the job's first node, 'no-such-node1.invalid', cannot be found");
  }
  // Nobody else comes.
  ProgramResult alone =
      finish(start_task(job(2, {"--comm_timeout", "1"}), variables(1, 2), "alone"));
  EXPECT_EQ(alone.status, 1);
  expect_contains(alone.message(), "found no '");
}

TEST_F(SlurmTasks, WithoutTheirVariablesAreRefused) {
  Variables task{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  for (const Words& words : {job(1), Words{"run"} + job(1)}) {
    ProgramResult result = finish(start_task(words, task, "lost"));
    EXPECT_EQ(result.status, 2) << result.err;
    expect_contains(result.message(), "one of several tasks of srun, but environment variable");
  }
  ProgramResult result = finish(start_task(agent(1, job(1)), task, "standalone"));
  EXPECT_EQ(result.status, 2) << result.err;
  expect_contains(result.message(), "and each task would do the whole job");
  EXPECT_EQ(finish(start_task({"plan", "--model_name", "gpt2"}, task, "plan")).status, 0);
}

TEST_F(SlurmTasks, ABatchScriptThatForgetsSrunIsTold) {
  Variables batch{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_NTASKS", "2"}};
  ProgramResult result = finish(start_task(job(1, {"--max_steps", "1"}), batch, "batch"));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "this process trains alone, and its Slurm job has 2 nodes");
  result = finish(start_task(Words{"run"} + job(1, {"--max_steps", "1"}), batch, "agent"));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "this agent is for one node, and its Slurm job has 2 nodes");
}

// Batch systems send it ahead of the end of a job's time; the status says that the job may come
// back.
TEST_F(SlurmTasks, SigUsr1IsStatus143FromTheStart) {
  struct Case {
    Words words;
    const char* tag;
  };
  for (const Case& c : {Case{job(2, {"--max_steps", "100000"}), "rank"},
                        Case{Words{"run"} + job(2, {"--max_steps", "100000"}), "agent"}}) {
    // Waits for a task that never comes.
    pid_t pid = start_task(c.words, variables(0, 2, 2), c.tag);
    for (const double end = monotonic_seconds() + 100;
         !token_is_left() && monotonic_seconds() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(token_is_left()) << c.tag;
    ::kill(pid, SIGUSR1);
    EXPECT_EQ(finish(pid).status, 143) << c.tag;
    for (const std::string& name : names("."))
      if (name.starts_with(".tessera-token")) std::filesystem::remove(path(name));
  }
}

}  // namespace
}  // namespace tessera
