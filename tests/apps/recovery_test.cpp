// Jobs that lose a rank, find a checkpoint damaged, or whose ranks and neighbours see other files.
#include "base/process_identity.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory_lock.h"
#include "tests/apps/ranks_fixture.h"
#include "tests/checkpoint/flipped_bits.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Recovery : public Ranks {
 protected:
  // What two ranks say that were started in the folders a and b.
  std::vector<ProgramResult> apart(const Words& more) {
    int port = free_port();
    Words words = job(1, more);
    return all_fail(
        {start_rank(0, 2, port, words, {}, "", "a"), start_rank(1, 2, port, words, {}, "", "b")});
  }
  // Folders for apart() with the same text, but for the first of them.
  void make_folders(const std::string& text_of_b = made_up_text(800)) const {
    for (const char* folder : {"a", "b"}) make_directories(path(folder));
    write("a/text.txt", made_up_text(800));
    write("b/text.txt", text_of_b);
  }
  // The process that holds the lock of a directory: rank 0.
  pid_t holder(const std::string& folder) const {
    return nlohmann::json::parse(read_file(path(folder) / kLockName)).at("pid").get<pid_t>();
  }
};

TEST_F(Recovery, DifferentCheckpointsAreNamedOnEveryRank) {
  make_folders();
  Words saving{"--checkpoint_dir", "ckpt", "--checkpoint_freq", "2"};
  run_ranks(2, job(1, saving) + Words{"--max_steps", "4"});
  fs::copy(path("ckpt"), path("a/ckpt"), fs::copy_options::recursive);
  make_directories(path("b/ckpt"));
  fs::copy(path("ckpt/llama_v2-2steps"), path("b/ckpt/llama_v2-2steps"),
           fs::copy_options::recursive);
  for (const ProgramResult& result : apart({"--resume_from_checkpoint", "ckpt"})) {
    expect_contains(result.message(),
                    cat("ranks 0 on ", host_name(), " and 1 on ", host_name(),
                        " see different checkpoints: rank 0 'ckpt/llama_v2-4steps' (manifest "));
    expect_contains(result.message(), "rank 1 'ckpt/llama_v2-2steps' (manifest ");
    EXPECT_EQ(result.err.find("loaded"), std::string::npos);
  }
  fs::rename(path("a/ckpt"), path("a/elsewhere"));
  for (const ProgramResult& result : apart({"--resume_from_checkpoint", "ckpt"})) {
    expect_contains(result.message(), "rank 0 no checkpoint, rank 1 'ckpt/llama_v2-2steps'");
  }
}

TEST_F(Recovery, DirectoriesOfOneHostAreFoundOutAtTheStart) {
  make_folders();
  for (const ProgramResult& result : apart({"--checkpoint_dir", "ckpt"})) {
    expect_contains(result.message(),
                    cat("--checkpoint_dir 'ckpt' is another directory for rank 1 on ", host_name(),
                        " than for rank 0 on ", host_name()));
    EXPECT_EQ(result.err.find("Batch 0"), std::string::npos);
  }
  EXPECT_FALSE(exists("a/ckpt"));
}

TEST_F(Recovery, DifferentTextIsNamedOnEveryRank) {
  make_folders(made_up_text(790));
  for (const ProgramResult& result : apart({})) {
    expect_contains(result.message(),
                    cat("ranks 0 on ", host_name(), " and 1 on ", host_name(),
                        " read different text under the same name: training text of "));
    expect_contains(result.message(), " and training text of ");
  }
}

TEST_F(Recovery, DamageOfOneRanksPartFallsBackOnAllRanks) {
  Words words = job(1, {"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt",
                        "--checkpoint_freq", "3"});
  run_ranks(2, words + Words{"--metrics_file", "straight"});
  fs::remove_all(path("ckpt/llama_v2-8steps"));
  flip_a_bit(path("ckpt/llama_v2-6steps/state-00002-of-00002.safetensors"));
  ProgramResult again = run_ranks(2, words + Words{"--metrics_file", "again"});
  expect_contains(again.err,
                  cat("rank 1 on ", host_name(), ": 'ckpt/llama_v2-6steps/state-00002-"));
  expect_contains(again.err, "Skipping 'ckpt/llama_v2-6steps' on all ranks");
  expect_contains(again.err, "Checkpoint loaded from ckpt/llama_v2-3steps.");
  EXPECT_EQ(again.err.find("loaded from ckpt/llama_v2-6steps"), std::string::npos);
  Words straight = losses("straight");
  EXPECT_EQ(losses("again"), Words(straight.begin() + 3, straight.end()));
  // Damage of what is read before anything is checked.
  std::string record = read_file(path("ckpt/llama_v2-8steps/run.json"));
  record[0] = '?';
  write("ckpt/llama_v2-8steps/run.json", record);
  again = run_ranks(2, words);
  expect_contains(again.err, "Skipping 'ckpt/llama_v2-8steps' on all ranks");
  expect_contains(again.err, "Checkpoint loaded from ckpt/llama_v2-6steps.");
}

TEST_F(Recovery, ARestartThatFindsNoCheckpointSaysSo) {
  Words words = agent(2, job(1, {"--checkpoint_dir", "ckpt", "--inject", "kill@rank=1,step=2"}));
  words.insert(words.begin() + 1, {"--max_restarts", "1"});
  ProgramResult result = run(words);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err,
                  "This restart begins from scratch: there is no checkpoint of the job in 'ckpt'");
}

TEST_F(Recovery, ARestartGoesOnWithTheJobsOwnCheckpoints) {
  Words words = job(1, {"--epochs", "1000000", "--checkpoint_dir", "ckpt", "--checkpoint_freq", "2",
                        "--num_kept_checkpoints", "2"});
  Words agent_words = agent(2, words);
  agent_words.insert(agent_words.begin() + 1, {"--max_restarts", "2"});
  pid_t pid = start(agent_words + Words{"--max_steps", "1000000", "--metrics_file", "m"});
  // That of step 4 is whole when that of step 6 begins.
  wait_for("m", "\"batch\":7,");
  ::kill(holder("ckpt"), SIGKILL);
  // It may have been killed before it removed the oldest: then the next save does.
  wait_for("m", "\"batch\":11,");
  ::kill(pid, SIGTERM);
  ProgramResult result = finish(pid);
  EXPECT_EQ(result.status, 143) << result.err;
  expect_contains(result.err, "Checkpoint loaded from ckpt/llama_v2-");
  expect_contains(result.err, "Restart 1 of at most 2 in 0.5 s");
  expect_contains(result.err, "was left by an earlier attempt of this job");
  EXPECT_EQ(names("ckpt").size(), 2u) << result.err;

  // The directory is another job's now: nothing of it is loaded, and nothing is tried again.
  std::set<std::string> before = names("ckpt");
  ProgramResult refused = run(agent_words + Words{"--max_steps", "1000000"});
  EXPECT_EQ(refused.status, 2);
  expect_contains(refused.err, "holds checkpoints of an earlier run");
  EXPECT_EQ(refused.err.find("Restart"), std::string::npos);
  EXPECT_EQ(names("ckpt"), before);
}

TEST_F(Recovery, TwoRunsAtOnceAreKeptApart) {
  Words words = train({"--epochs", "1000000", "--max_steps", "1000000", "--checkpoint_dir", "ckpt",
                       "--checkpoint_freq", "2", "--num_kept_checkpoints", "2"});
  pid_t first = start(
      words + Words{"--metrics_file", "m"}, [] {}, "first");
  wait_for("m", "\"batch\":3,");
  ProgramResult second = run(words + Words{"--resume_from_checkpoint", "ckpt"});
  EXPECT_EQ(second.status, 1);
  expect_contains(second.message(),
                  cat("'ckpt' is in use by process ", first, " on ", host_name()));
  second = run(agent(2, job(1, {"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt"})));
  EXPECT_EQ(second.status, 1);
  expect_contains(second.err, cat("tessera: rank 0 on ", host_name(), ": 'ckpt' is in use by "));
  // Killed, it leaves its lock, which holds up nobody.
  ::kill(first, SIGKILL);
  finish(first);
  EXPECT_TRUE(names("ckpt").contains(std::string(kLockName)));
  ProgramResult third = run(train({"--epochs", "1000000", "--max_steps", "1", "--checkpoint_dir",
                                   "ckpt", "--resume_from_checkpoint", "ckpt"}));
  EXPECT_EQ(third.status, 0) << third.err;
  expect_contains(third.err, cat("process ", first, " on ", host_name()));
  expect_contains(third.err, "which has ended: this run takes it over");
  EXPECT_FALSE(names("ckpt").contains(std::string(kLockName)));
}

// The cache of the tokens is cut short, or its disk has gone.
TEST_F(Recovery, RanksSaveWhatTheyHaveLearnedWhereTheirCacheIsGone) {
  const pid_t pid =
      start(agent(2, job(2, {"--max_steps", "1000000", "--epochs", "1000000", "--checkpoint_dir",
                             "ckpt", "--metrics_file", "metrics", "--validation_fraction", "0",
                             "--cache_dir", "own_cache"})));
  wait_for("metrics", "\"batch\":3,");
  size_t cut = 0;
  for (const auto& file : std::filesystem::directory_iterator(path("own_cache"))) {
    if (!file.path().filename().string().starts_with("tokens-")) continue;
    std::filesystem::resize_file(file.path(), 0);
    ++cut;
  }
  EXPECT_GT(cut, 0u);
  const ProgramResult result = finish(pid);
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err, "another program has cut it short");
  const size_t steps = losses("metrics").size();
  EXPECT_GT(steps, 3u);
  EXPECT_EQ(names("ckpt"), std::set{cat("llama_v2-", steps, "steps")}) << result.err;
}

}  // namespace
}  // namespace tessera
