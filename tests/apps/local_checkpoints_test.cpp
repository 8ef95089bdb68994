// --checkpoint_type local: hosts whose directories of checkpoints are their own, as two folders.
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class LocalCheckpoints : public Ranks {
 protected:
  LocalCheckpoints() {
    for (const char* folder : {"a", "b"}) {
      make_directories(path(folder));
      write(cat(folder, "/text.txt"), made_up_text(800));
    }
  }
  // Each rank on the host that has its letter, in the folder of that.
  std::string run_placed(const std::string& host_of_rank, const Words& words) {
    const int world = static_cast<int>(host_of_rank.size()), port = free_port();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < world; ++rank) {
      const std::string host(1, host_of_rank[static_cast<size_t>(rank)]);
      const auto begin = host_of_rank.begin();
      ranks.push_back(
          start_rank(rank, world, port, words,
                     {{"LOCAL_RANK", cat(std::count(begin, begin + rank, host[0]))},
                      {"LOCAL_WORLD_SIZE", cat(std::count(begin, host_of_rank.end(), host[0]))},
                      {"TESSERA_HOST_ID", host}},
                     "", host));
    }
    std::string log;
    for (pid_t pid : ranks) {
      ProgramResult result = finish(pid);
      EXPECT_EQ(result.status, 0) << result.err;
      if (log.empty()) log = result.err;
    }
    return log;
  }
  // Ranks of two hosts, in the order of the hosts, each in the folder of its host.
  std::vector<pid_t> start_hosts(int ranks_each, const Words& words,
                                 const std::string& hosts = "ab") {
    std::vector<pid_t> ranks;
    const int world = 2 * ranks_each, port = free_port();
    for (int rank = 0; rank < world; ++rank) {
      const std::string host(1, hosts[rank < ranks_each ? 0 : 1]);
      ranks.push_back(start_rank(rank, world, port, words,
                                 {{"LOCAL_RANK", cat(rank % ranks_each)},
                                  {"LOCAL_WORLD_SIZE", cat(ranks_each)},
                                  {"TESSERA_HOST_ID", host}},
                                 "", host));
    }
    return ranks;
  }
  std::string run_hosts(int ranks_each, const Words& words) {
    std::string log;
    for (pid_t pid : start_hosts(ranks_each, words)) {
      ProgramResult result = finish(pid);
      EXPECT_EQ(result.status, 0) << result.err;
      if (log.empty()) log = result.err;
    }
    return log;
  }
  static Words local(const Words& more = {}) {
    return job(1, Words{"--checkpoint_type", "local", "--checkpoint_dir", "ckpt",
                        "--checkpoint_freq", "2", "--num_kept_checkpoints", "2"} +
                      more);
  }
  std::set<std::string> state_files(const std::string& checkpoint) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path(checkpoint))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("state")) names.insert(name.substr(0, 20));
    }
    return names;
  }
};

using Set = std::set<std::string>;

TEST_F(LocalCheckpoints, EachHostHasItsPart) {
  run_hosts(2, local());
  EXPECT_EQ(state_files("a/ckpt/llama_v2-8steps"),
            (Set{"state-00001-of-00004", "state-00002-of-00004"}));
  EXPECT_EQ(state_files("b/ckpt/llama_v2-8steps"),
            (Set{"state-00003-of-00004", "state-00004-of-00004"}));
  for (const char* host : {"a", "b"})
    EXPECT_EQ(names(cat(host, "/ckpt")), (Set{"llama_v2-6steps", "llama_v2-8steps"}));
  EXPECT_EQ(identity_of(read_manifest(path("a/ckpt/llama_v2-8steps"))),
            identity_of(read_manifest(path("b/ckpt/llama_v2-8steps"))));
  EXPECT_EQ(read_file(path("a/ckpt/llama_v2-8steps/run.json")),
            read_file(path("b/ckpt/llama_v2-8steps/run.json")));

  // The parts of the same mesh are gone on with, to the same bits.
  const std::string state = "ckpt/llama_v2-8steps/state-00003-of-00004.safetensors";
  const std::string straight = read_file(path("b/" + state));
  for (const char* host : {"a", "b"}) fs::remove_all(path(cat(host, "/ckpt/llama_v2-8steps")));
  const Words resume{"--resume_from_checkpoint", "ckpt"};
  expect_contains(run_hosts(2, local(resume)), "Checkpoint loaded from ckpt/llama_v2-6steps.");
  EXPECT_EQ(read_file(path("b/" + state)), straight);

  // All in one directory they are a checkpoint as any other.
  make_directories(path("together"));
  for (const char* host : {"a", "b"})
    fs::copy(path(cat(host, "/ckpt/llama_v2-8steps")), path("together/llama_v2-8steps"),
             fs::copy_options::recursive | fs::copy_options::skip_existing);
  ProgramResult verified = run({"checkpoint", "verify", "together"});
  EXPECT_EQ(verified.status, 0) << verified.out;
  ProgramResult alone = run(job(4, {"--resume_from_checkpoint", "together", "--max_steps", "9"}));
  EXPECT_EQ(alone.status, 0) << alone.err;
  expect_contains(alone.err, "Checkpoint loaded from together/llama_v2-8steps.");

  // So little as there is here the hosts tell each other, whatever the mesh is now.
  expect_contains(run_hosts(1, local(resume)), "Checkpoint loaded from ckpt/llama_v2-8steps.");
  expect_contains(run({"checkpoint", "verify", "a/ckpt"}).out, "is in the part of another host");

  // What one host has lost is lost for all, and what is older is not.
  fs::remove_all(path("b/ckpt/llama_v2-8steps"));
  const std::string log = run_hosts(2, local(resume));
  expect_contains(log, "'ckpt/llama_v2-8steps' has no part here");
  expect_contains(log, "Checkpoint loaded from ckpt/llama_v2-6steps.");
  EXPECT_EQ(read_file(path("b/" + state)), straight);
  fs::remove(path("b/ckpt/llama_v2-8steps/state-00004-of-00004.safetensors"));
  expect_contains(run_hosts(2, local(resume)), "Checkpoint loaded from ckpt/llama_v2-6steps.");
  fs::remove_all(path("b/ckpt"));
  for (const ProgramResult& result : all_fail(start_hosts(2, local(resume))))
    expect_contains(result.message(), "there is no older one that is whole");
}

TEST_F(LocalCheckpoints, HostsMayHaveAnyRanks) {
  for (const char* placed : {"abbb", "aab", "abab"}) {
    SCOPED_TRACE(placed);
    for (const char* host : {"a", "b"}) fs::remove_all(path(cat(host, "/ckpt")));
    run_placed(placed, local());
    for (const char* host : {"a", "b"}) {
      EXPECT_EQ(names(cat(host, "/ckpt")), (Set{"llama_v2-6steps", "llama_v2-8steps"}));
      fs::remove_all(path(cat(host, "/ckpt/llama_v2-8steps")));
    }
    expect_contains(run_placed(placed, local({"--resume_from_checkpoint", "ckpt"})),
                    "Checkpoint loaded from ckpt/llama_v2-6steps.");
  }
}

TEST_F(LocalCheckpoints, HostsOfUnequalNumbersOfRanksMakeOneMesh) {
  const Words hybrid = job(1, {"--sharding_strategy", "hybrid_shard", "--max_steps", "1"});
  make_directories(path("c"));
  write("c/text.txt", made_up_text(800));
  const std::string log = run_placed("aabc", hybrid);
  expect_contains(log, "Ranks: replicate 4");
  expect_contains(log, "--sharding_strategy hybrid_shard: a host has one data-parallel rank only");
  expect_contains(log, " (ranks: 2 on ");
  expect_contains(run_placed("aaaabb", hybrid), "Ranks: replicate 3 x shard 2");
}

TEST_F(LocalCheckpoints, OtherHostsForTheRanksNeedTheWhole) {
  const Words large =
      local({"--hidden_width", "512", "--intermediate_size", "1024", "--max_steps", "2"});
  run_hosts(2, large);
  for (const ProgramResult& result :
       all_fail(start_hosts(2, large + Words{"--resume_from_checkpoint", "ckpt"}, "ba"))) {
    expect_contains(result.message(), "is the part of one host");
    expect_contains(result.message(), "copy the directories of all hosts into one");
  }
}

TEST_F(LocalCheckpoints, ASharedTierBesideThem) {
  const Words tiers = job(1, {"--checkpoint_type", "local", "--checkpoint_dir", "ckpt", "../shared",
                              "--checkpoint_freq", "2", "4"});
  run_hosts(2, tiers + Words{"--save_final_model", "1", "--model_dir", "../model"});
  EXPECT_TRUE(exists("model/model.safetensors"));
  EXPECT_EQ(state_files("shared/llama_v2-8steps").size(), 4u);
  EXPECT_EQ(state_files("a/ckpt/llama_v2-8steps").size(), 2u);
  EXPECT_EQ(names("shared"), (Set{"llama_v2-4steps", "llama_v2-8steps"}));
  // A host comes back without its disk.
  fs::remove_all(path("b/ckpt"));
  fs::remove_all(path("shared/llama_v2-8steps"));
  const std::string log =
      run_hosts(2, tiers + Words{"--resume_from_checkpoint", "ckpt", "../shared"});
  expect_contains(log, "Checkpoint loaded from ../shared/llama_v2-4steps.");
}

TEST_F(LocalCheckpoints, AFinalModelNeedsADirectoryOfAllHosts) {
  const Words own{"--save_final_model", "1", "--model_dir", "model"};
  for (const Words& words : {local(own), job(1, own + Words{"--save_ckpt", "0"})}) {
    for (const ProgramResult& result : all_fail(start_hosts(1, words))) {
      expect_contains(result.message(),
                      "--save_final_model: 'model.pieces' is another directory for rank 1 on ");
      EXPECT_EQ(result.err.find("Batch 0"), std::string::npos);
    }
    for (const char* host : {"a", "b"}) EXPECT_FALSE(exists(cat(host, "/model.pieces")));
  }
  const Words shared{"--save_final_model", "1", "--model_dir", "../model"};
  run_hosts(1, local(shared));
  EXPECT_TRUE(exists("model/model.safetensors"));
}

TEST_F(LocalCheckpoints, CopiesBetweenHostsAreSmallHere) {
  // The counters and norms of replicas: far below what hosts tell each other.
  run_hosts(2, local({"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}));
  for (const char* host : {"a", "b"}) fs::remove_all(path(cat(host, "/ckpt/llama_v2-8steps")));
  expect_contains(run_hosts(2, local({"--sharding_strategy", "hybrid_shard", "--shard_degree", "2",
                                      "--resume_from_checkpoint", "ckpt"})),
                  "Checkpoint loaded from ckpt/llama_v2-6steps.");
}

}  // namespace
}  // namespace tessera
