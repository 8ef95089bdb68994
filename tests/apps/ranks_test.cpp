// Several ranks as real processes, by `tessera run` and by hand: the same bits over every
// transport, resuming, signals, and errors that reach every rank.
#include <sched.h>

#include "comm/tcp_socket.h"
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

class Ranks : public ProgramTest {
 protected:
  static constexpr int kGlobalBatch = 4, kSteps = 8;

  // A port that was free a moment ago.
  static int free_port() { return local_port(listen_on({"127.0.0.1", 0})); }

  // `rows` windows a data-parallel rank; no time for a measurement of the machine's peak.
  static Words job(int rows, const Words& more = {}) {
    return train({"--train_batch_size", cat(rows), "--threads", "1", "--peak_tflops_per_gpu", "1",
                  "--max_steps", cat(kSteps), "--run_validation", "0", "--comm_timeout", "20"}) +
           more;
  }
  static Words agent(int ranks, const Words& words) {
    return Words{"run", "--standalone", "--nproc_per_node", cat(ranks)} + words;
  }
  ProgramResult run_ranks(int ranks, const Words& words) {
    ProgramResult result = run(agent(ranks, words));
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  }

  // Two agents that take themselves for two hosts, two ranks each.
  void run_two_hosts(const Words& words) {
    Words place{"run",
                "--nnodes",
                "2",
                "--nproc_per_node",
                "2",
                "--rdzv_backend",
                "c10d",
                "--rdzv_endpoint",
                cat("localhost:", free_port()),
                "--rdzv_id",
                "job"};
    std::vector<pid_t> agents;
    for (std::string host : {"a", "b"}) {
      agents.push_back(start(
          place + words, [&] { ::setenv("TESSERA_HOST_ID", host.c_str(), 1); }, host));
    }
    for (pid_t pid : agents) {
      ProgramResult result = finish(pid);
      EXPECT_EQ(result.status, 0) << result.err;
    }
  }

  // One rank as another launcher would start it.
  pid_t start_rank(int rank, int world, int port, const Words& words, const Variables& more = {},
                   const std::string& tag = "") {
    Variables all{{"RANK", cat(rank)},
                  {"LOCAL_RANK", cat(rank)},
                  {"WORLD_SIZE", cat(world)},
                  {"LOCAL_WORLD_SIZE", cat(world)},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", cat(port)},
                  {"TESSERA_JOB_TOKEN", "secret"}};
    all.insert(all.end(), more.begin(), more.end());
    auto set = [all] {
      for (const auto& [name, value] : all) ::setenv(name.c_str(), value.c_str(), 1);
    };
    return start(words, set, cat("port", port, "rank", rank, tag));
  }
  // What all ranks of a job said that was to fail: each ends by itself, with status 1 or 2.
  std::vector<ProgramResult> all_fail(const std::vector<pid_t>& ranks) {
    std::vector<ProgramResult> results;
    for (pid_t pid : ranks) {
      results.push_back(finish(pid));
      EXPECT_TRUE(results.back().status == 1 || results.back().status == 2) << results.back().err;
    }
    return results;
  }

  void expect_close(const Words& a, const Words& b, double bound) const {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(std::stod(a[i]), std::stod(b[i]), bound * std::stod(b[i])) << "step " << i;
  }
};

TEST_F(Ranks, EveryTransportGivesTheSameBits) {
  ProgramResult alone = run(job(kGlobalBatch, {"--metrics_file", "one"}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  Words one = losses("one");
  ASSERT_EQ(one.size(), static_cast<size_t>(kSteps));
  for (int ranks : {2, 4}) {
    Words words = job(kGlobalBatch / ranks);
    auto losses_over = [&](const std::string& transport) {
      std::string file = cat(transport, ranks);  // a metrics file is appended to
      run_ranks(ranks, words + Words{"--distributed_backend", transport, "--metrics_file", file});
      return losses(file);
    };
    Words shared = losses_over("shared_memory");
    EXPECT_EQ(losses_over("gloo"), shared);
    if (ranks == 4) {
      run_two_hosts(words + Words{"--metrics_file", "mix"});
      EXPECT_EQ(losses("mix"), shared);
    }
    expect_close(shared, one, 1e-3);
  }
}

struct Layout {
  std::string name;
  int ranks;
  Words options;
};

class Layouts : public Ranks, public testing::WithParamInterface<Layout> {};
INSTANTIATE_TEST_SUITE_P(
    Each, Layouts,
    testing::Values(
        Layout{"FullShard", 2, {}},
        Layout{"HybridShard", 4, {"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}},
        Layout{"TensorParallel", 2, {"--tensor_parallel_degree", "2"}},
        Layout{"Frozen", 2, {"--freeze", "model.embed_tokens.*,*.0.*"}}),
    [](const auto& test) { return test.param.name; });

// Weights drawn by one rank and, piece by piece, by several are the same; a rate of 0 keeps them.
TEST_P(Layouts, GenerateFromEveryRanksPart) {
  auto [name, ranks, options] = GetParam();
  Words untrained{"--lr", "0", "--min_lr", "0", "--max_steps", "1"};
  ProgramResult alone = run(job(kGlobalBatch, untrained + Words{"--checkpoint_dir", "one"}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  run_ranks(ranks, job(1, untrained + options + Words{"--checkpoint_dir", "parts"}));
  auto generate = [&](const std::string& folder) {
    ProgramResult result = run({"generate", folder, "--prompt", "the", "--max_new_tokens", "30"});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(generate("parts"), generate("one"));
}

TEST_P(Layouts, ResumeToTheBit) {
  auto [name, ranks, options] = GetParam();
  Words words = job(1, options);
  run_ranks(ranks, words + Words{"--metrics_file", "straight"});
  Words saving{"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt"};
  run_ranks(ranks, words + saving + Words{"--max_steps", "5", "--metrics_file", "first"});
  EXPECT_EQ(names("ckpt"), std::set<std::string>{"llama_v2-5steps"});
  run_ranks(ranks, words + saving + Words{"--metrics_file", "second"});
  EXPECT_EQ(losses("first") + losses("second"), losses("straight"));
}

TEST_F(Ranks, AnotherShardingDoesNotResume) {
  Words saving{"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt"};
  run_ranks(2, job(1, saving) + Words{"--max_steps", "2"});
  struct Case {
    int ranks;
    Words options;
    std::string why;
  };
  for (const Case& other :
       {Case{4, {}, "has 2 parts, this run has 4"}, Case{1, {}, "has 2 parts, this run has 1"},
        Case{2, {"--tensor_parallel_degree", "2"}, "was saved with shard 2, this run has tp 2"}}) {
    ProgramResult result = run(agent(other.ranks, job(1, saving) + other.options));
    EXPECT_EQ(result.status, 1);
    expect_contains(result.err,
                    cat("checkpoint 'ckpt/llama_v2-2steps' ", other.why,
                        ": resume with the number of ranks and the sharding that it was "
                        "saved with"));
  }
}

TEST_F(Ranks, SigtermToTheAgentSavesAndTheResumeGoesOn) {
  Words words = agent(2, job(1, {"--epochs", "1000000", "--checkpoint_dir", "ckpt",
                                 "--resume_from_checkpoint", "ckpt"}));
  pid_t pid = start(words + Words{"--max_steps", "1000000", "--metrics_file", "first"});
  wait_for("first", "\"batch\":3,");
  ::kill(pid, SIGTERM);
  ProgramResult result = finish(pid);
  EXPECT_EQ(result.status, 143) << result.err;
  Words first = losses("first");
  size_t done = first.size();
  expect_contains(result.err, cat("Interrupted after step ", done, "; saved."));
  Words to_the_end{"--max_steps", cat(done + 3), "--metrics_file"};
  ProgramResult second = run(words + to_the_end + Words{"second"});
  EXPECT_EQ(second.status, 0) << second.err;
  run_ranks(2, job(1, {"--epochs", "1000000"}) + to_the_end + Words{"straight"});
  EXPECT_EQ(first + losses("second"), losses("straight"));
}

TEST_F(Ranks, MoreRanksThanCoresIsAWarning) {
  ProgramResult result = run(agent(2, job(2)), [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
  });
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "2 ranks on 1 core");
}

class BadJobs : public Ranks {
 protected:
  int port_ = free_port();
};

TEST_F(BadJobs, DifferentOptionsAreNamedOnEveryRank) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(start_rank(rank, 3, port_, job(1, {"--lr", rank == 2 ? "0.02" : "0.01"})));
  for (const ProgramResult& result : all_fail(ranks)) {
    expect_contains(result.message(),
                    "ranks 0 and 2 have different options: --lr 0.01 and --lr 0.02;");
  }
}

TEST_F(BadJobs, DifferentTransportsAreNamedOnEveryRank) {
  for (const ProgramResult& result :
       all_fail({start_rank(0, 2, port_, job(1, {"--distributed_backend", "gloo"})),
                 start_rank(1, 2, port_, job(1, {"--distributed_backend", "shared_memory"}))}))
    expect_contains(result.message(),
                    "rank 1 is to use the transport shared_memory and rank 0 gloo");
}

// Three jobs at once, since each of them ends at its deadline: in one a rank has another token, in
// one two never start, in one a rank is started twice and one not at all.
TEST_F(BadJobs, RanksThatDoNotJoin) {
  Words words = job(1, {"--comm_timeout", "2"});
  int few = free_port(), twice = free_port();
  std::vector<pid_t> token{start_rank(0, 2, port_, words),
                           start_rank(1, 2, port_, words, {{"TESSERA_JOB_TOKEN", "another"}})};
  std::vector<pid_t> missing{start_rank(0, 4, few, words), start_rank(2, 4, few, words)};
  std::vector<pid_t> twins{start_rank(0, 3, twice, words), start_rank(1, 3, twice, words),
                           start_rank(1, 3, twice, words, {}, "again")};

  auto results = all_fail(token);
  expect_contains(results[0].message(), "rank 1 of 2 has not arrived within 2 s");
  expect_contains(results[1].message(), "refused this process: another job's token");
  for (const ProgramResult& result : all_fail(missing))
    expect_contains(result.message(), "ranks 1, 3 of 4 have not arrived within 2 s");
  results = all_fail(twins);
  expect_contains(results[0].message(), "rank 2 of 3 has not arrived within 2 s");
  expect_contains(results[1].message() + results[2].message(), "rank 1 of 3 has joined already");
  expect_contains(results[1].message() + results[2].message(),
                  "rank 2 of 3 has not arrived within 2 s");
}

TEST_F(BadJobs, NobodyServesTheStore) {
  ProgramResult result = all_fail({start_rank(1, 2, port_, job(1, {"--comm_timeout", "1"}))})[0];
  expect_contains(result.message(), cat("127.0.0.1:", port_));
}

TEST_F(BadJobs, PortInUse) {
  FileDescriptor other = listen_on({"127.0.0.1", 0});  // and never answers
  int port = local_port(other);
  Words words = job(1, {"--comm_timeout", "1"});
  auto results = all_fail({start_rank(0, 2, port, words), start_rank(1, 2, port, words)});
  expect_contains(results[0].message(), cat("127.0.0.1:", port, " is in use by another process"));
  expect_contains(results[1].message(), cat("127.0.0.1:", port));

  ProgramResult agent = run(Words{"run", "--nnodes", "1", "--nproc_per_node", "2", "--rdzv_backend",
                                  "c10d", "--rdzv_endpoint", cat("127.0.0.1:", port)} +
                            words);
  EXPECT_EQ(agent.status, 1);
  expect_contains(agent.message(), cat("127.0.0.1:", port, " is in use by another process"));
}

TEST_F(BadJobs, DegreesThatDoNotFitTheWorld) {
  struct Case {
    Words options;
    std::string message;
  };
  for (const Case& wrong :
       {Case{{"--tensor_parallel_degree", "4"}, "--tensor_parallel_degree 4 does not divide"},
        Case{{"--shard_degree", "3"}, "--shard_degree 3 does not divide the world of 2: give 1, 2"},
        Case{{"--tensor_parallel_degree", "2", "--num_heads", "3", "--num_key_value_heads", "1",
              "--hidden_width", "48"},
             "--tensor_parallel_degree 2 does not divide the 3 heads (num_heads)"}}) {
    int port = free_port();
    Words words = job(1, wrong.options);
    for (const ProgramResult& result :
         all_fail({start_rank(0, 2, port, words), start_rank(1, 2, port, words)}))
      expect_contains(result.message(), wrong.message);
  }
}

}  // namespace
}  // namespace tessera
