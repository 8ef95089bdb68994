// Jobs whose ranks are processes, each with a GPU of its own: `tessera run` with --device_type cuda
// on the emulated device. They train as one rank on the CPU does, continue each other's
// checkpoints, and end with an error that names the rank when one dies, hangs or has no memory.
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

class CudaJobs : public Ranks {
 protected:
  void SetUp() override {
    make_directories(path("meetings"));
    ::setenv("TESSERA_CUDA_LIBRARIES", (std::string(TESSERA_EMULATED_GPU) + "/quick").c_str(), 1);
    ::setenv("TESSERA_EMULATED_GPU_DEVICES", "4", 1);
    ::setenv("TMPDIR", path("meetings").c_str(), 1);
  }
  void TearDown() override {
    for (const char* name :
         {"TESSERA_CUDA_LIBRARIES", "TESSERA_EMULATED_GPU_DEVICES", "TESSERA_EMULATED_GPU_FAULT",
          "TESSERA_EMULATED_GPU_RINGS", "TESSERA_EMULATED_GPU_NO_PEERS",
          "TESSERA_EMULATED_GPU_SEED", "TMPDIR"})
      ::unsetenv(name);
  }
  static Words cuda_job(int rows, const Words& more) {
    return job(rows, Words{"--device_type", "cuda", "--bf16", "0", "--max_steps", "4"} + more);
  }
  // Losses of ranks on GPUs, of whose work nothing was found wrong.
  Words trained(int ranks, const Words& more, const std::string& metrics) {
    const ProgramResult result =
        run_ranks(ranks, cuda_job(kGlobalBatch / ranks, more + Words{"--metrics_file", metrics}));
    EXPECT_EQ(result.err.find("tessera emulated GPU:"), std::string::npos) << result.err;
    return losses(metrics);
  }
  Words trained_on_cpu(const Words& more, const std::string& metrics) {
    const ProgramResult result =
        run(job(kGlobalBatch, Words{"--bf16", "0", "--max_steps", "4"} + more +
                                  Words{"--metrics_file", metrics}));
    EXPECT_EQ(result.status, 0) << result.err;
    return losses(metrics);
  }
  // What the other ranks say, without an agent that would end them, when rank 1 has a fault: of the
  // emulated device, or injected. Rank 1 is killed if it has not ended by then. Their last line may
  // be the device's, of what the failure left undone.
  std::vector<ProgramResult> beside(const std::string& fault, int world, const Words& more = {}) {
    const int port = free_port();
    ::setenv("TESSERA_EMULATED_GPU_FAULT", fault.c_str(), 1);
    const Words words = cuda_job(kGlobalBatch / world, more);
    const double begin = monotonic_seconds();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(start_rank(rank, world, port, words));
    ::unsetenv("TESSERA_EMULATED_GPU_FAULT");
    std::vector<ProgramResult> results;
    for (int rank = 0; rank < world; ++rank) {
      if (rank == 1) continue;
      results.push_back(finish(ranks[static_cast<size_t>(rank)]));
      results.back().seconds = monotonic_seconds() - begin;
      EXPECT_EQ(results.back().status, 1) << fault << ": " << results.back().err;
    }
    ::kill(ranks[1], SIGKILL);
    finish(ranks[1]);
    return results;
  }
};

TEST_F(CudaJobs, TrainAsOneRankOnTheCpuDoes) {
  const Words one = trained_on_cpu({}, "one");
  ASSERT_EQ(one.size(), 4u);
  const Words two = trained(2, {}, "two");
  expect_close(two, one, 1e-5);
  expect_lacks(read_file(path("two")), "exchange_seconds");  // which the host does not know
  const Words four = trained(4, {}, "four");
  expect_close(four, one, 1e-5);
  expect_close(trained(4, {"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}, "hybrid"),
               one, 1e-5);
  const Words parallel{"--tensor_parallel_degree", "2", "--train_batch_size", "4"};
  expect_close(trained(2, parallel, "tensor"), one, 1e-5);
  // Again, in another order of all that events leave open; with sums in rank order whatever order
  // NCCL would take.
  ::setenv("TESSERA_EMULATED_GPU_SEED", "7", 1);
  EXPECT_EQ(trained(2, {}, "again"), two);
  ::setenv("TESSERA_EMULATED_GPU_RINGS", "1", 1);
  expect_close(trained(4, {}, "rings"), one, 1e-5);
  EXPECT_EQ(trained(4, {"--reproducible", "1"}, "ordered"), four);
  // Which was by each other's memory; where there is no way to it, not.
  ::setenv("TESSERA_EMULATED_GPU_NO_PEERS", "1", 1);
  EXPECT_EQ(trained(4, {"--reproducible", "1"}, "moved"), four);
}

TEST_F(CudaJobs, SayWhetherSumsReadPeersMemory) {
  const auto text = [](const ProgramResult& result) { return result.out + result.err; };
  const Words words = cuda_job(2, {"--reproducible", "1", "--max_steps", "2"});
  expect_contains(text(run_ranks(2, words)),
                  "Sums between GPUs read the memory of the other ranks");
  ::setenv("TESSERA_EMULATED_GPU_NO_PEERS", "1", 1);
  expect_contains(text(run_ranks(2, words)),
                  "NCCL moves it: CUDA: emulated GPU 0 does not reach the memory of rank 1");
}

// NCCL before 2.19, on all ranks or on one of them: none registers its memory, which is said once,
// and nothing else is different.
TEST_F(CudaJobs, GoOnWhereNcclCannotRegisterMemory) {
  const std::string words = "is not registered with NCCL: ";
  const auto job = [](const std::string& metrics) {
    return cuda_job(2, {"--metrics_file", metrics});
  };
  const ProgramResult registers = run_ranks(2, job("registers"));
  EXPECT_EQ((registers.out + registers.err).find(words), std::string::npos);
  for (const std::vector<int>& without : {std::vector{0, 1}, {0}, {1}}) {
    const std::string metrics = cat("without", without.front(), "of", without.size());
    SCOPED_TRACE(metrics);
    const int port = free_port();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      const bool old = std::find(without.begin(), without.end(), rank) != without.end();
      const Variables more{{"TESSERA_EMULATED_NCCL_VERSION", old ? "21805" : "21900"}};
      ranks.push_back(start_rank(rank, 2, port, job(metrics), more, metrics));
    }
    std::string all;
    for (const pid_t rank : ranks) {
      const ProgramResult result = finish(rank);
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out + result.err;
    }
    const size_t said = all.find(words);
    ASSERT_NE(said, std::string::npos) << all;
    expect_contains(all.substr(said),
                    cat(words, "rank ", without.front(), ": NCCL 2.18.5 has no ncclCommRegister"));
    EXPECT_EQ(all.find(words, said + 1), std::string::npos) << all;
    EXPECT_EQ(all.find("tessera emulated GPU:"), std::string::npos) << all;
    EXPECT_EQ(losses(metrics), losses("registers"));
  }
}

TEST_F(CudaJobs, ContinueEachOthersCheckpoints) {
  const Words straight = trained_on_cpu({"--max_steps", "6"}, "straight");
  const auto part = [](int end) {
    return Words{"--max_steps", cat(end), "--checkpoint_dir", "ckpt", "--resume_from_checkpoint",
                 "ckpt"};
  };
  Words parts = trained(2, part(2), "a");
  parts = parts + trained_on_cpu(part(4), "b");
  parts = parts + trained(4, part(6), "c");
  expect_close(parts, straight, 1e-5);
}

// Two agents on one machine that take themselves for hosts.
TEST_F(CudaJobs, SayByWhichNetworkHostsAreReached) {
  run_two_hosts(
      cuda_job(1, {"--max_steps", "2", "--sharding_strategy", "hybrid_shard", "--shard_degree", "2",
                   "--reproducible", "1", "--metrics_file", "hosts"}));
  expect_close(losses("hosts"), trained_on_cpu({"--max_steps", "2"}, "one"), 1e-5);
  const std::string all = read_file(path("a.err")) + read_file(path("b.err"));
  expect_contains(all, "NCCL reaches other hosts over TCP sockets");
  expect_contains(all + read_file(path("a.out")) + read_file(path("b.out")), " over Socket");
}

// While ranks connect, at a kernel drawn by lot, in an exchange, and while a checkpoint is read
// from the device.
TEST_F(CudaJobs, EndWithARankThatIsKilled) {
  const uint64_t point = random_below(static_cast<uint64_t>(::getpid()), 0, 0, 600) + 1;
  for (const std::string& event : {std::string("init=1"), cat("launch=", point),
                                   std::string("exchange=7"), std::string("copy=3")}) {
    SCOPED_TRACE(event);
    const int world = event.starts_with("launch") ? 4 : 2;
    for (const ProgramResult& result :
         beside("kill rank=1 " + event, world,
                {"--checkpoint_dir", cat("ckpt-", event), "--checkpoint_freq", "1", "--max_steps",
                 "9", "--comm_timeout", "100"})) {
      EXPECT_LT(result.seconds, 50);
      expect_contains(result.err, "rank 1 was lost: its process has ended");
    }
  }
}

// While it reads what another has, and before others have read what it has.
TEST_F(CudaJobs, EndWithAReproducibleRankThatIsKilled) {
  for (const std::string& event : {std::string("launch=150"), std::string("exchange=9")}) {
    for (const ProgramResult& result :
         beside("kill rank=1 " + event, 2, {"--reproducible", "1", "--comm_timeout", "100"})) {
      EXPECT_LT(result.seconds, 50);
      expect_contains(result.err, "rank 1 was lost: its process has ended");
    }
  }
}

TEST_F(CudaJobs, NameARankThatHangs) {
  const Words soon{"--comm_timeout", "8"};
  for (const ProgramResult& result : beside("stop rank=1 launch=300", 4, soon))
    expect_contains(result.err, "rank 1 did not answer rank ");
  // In a fence of sums in rank order, too.
  for (const ProgramResult& result :
       beside("stop rank=1 launch=300", 2, soon + Words{"--reproducible", "1"}))
    expect_contains(result.err, "rank 1 did not answer rank 0");
  const std::string stalled =
      beside("", 2, soon + Words{"--inject", "stall@rank=1,step=2"}).front().err;
  EXPECT_TRUE(stalled.find("rank 1 did not answer rank 0") != std::string::npos ||
              stalled.find("rank 1 has started ") != std::string::npos)
      << stalled;
}

TEST_F(CudaJobs, EndWithARankThatHasNoMemory) {
  const ProgramResult result =
      beside("fail rank=1 allocation=5", 2, {"--comm_timeout", "100"}).front();
  EXPECT_LT(result.seconds, 50);
  expect_contains(result.err, "rank 1 failed: out of memory: cannot allocate ");
}

// Launch by launch, as the first run of a program goes, and where nothing is broken off in time.
TEST_F(CudaJobs, EndWhateverBecomesOfTheirExchanges) {
  for (const int launch : {60, 100, 140}) {
    for (const ProgramResult& result :
         beside(cat("kill rank=1 launch=", launch), 2, {"--gradient_accumulation_steps", "3"}))
      expect_contains(result.err, "rank 1 was lost: its process has ended");
  }
  for (const ProgramResult& result :
       beside("fail rank=0 abort=1", 2, {"--inject", "kill@rank=1,step=3"})) {
    expect_contains(result.err, "rank 1 was lost: its process has ended");
    expect_contains(result.err, "were not broken off within 10 s");
  }
}

TEST_F(CudaJobs, EndWithARankThatHasNoGpu) {
  ::setenv("TESSERA_EMULATED_GPU_DEVICES", "2", 1);
  const int port = free_port();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start_rank(rank, 3, port, cuda_job(1, {})));
  const std::vector<ProgramResult> results = all_fail(ranks);
  expect_contains(results[2].err, "CUDA: no GPU 2: the driver shows 2 to this process");
  for (const int rank : {0, 1})
    expect_contains(results[static_cast<size_t>(rank)].err, "rank 2 failed: CUDA: no GPU 2");
}

TEST_F(CudaJobs, DoNotShareAGpu) {
  ::setenv("TESSERA_EMULATED_GPU_DEVICES", "1", 1);
  const ProgramResult result = run(agent(2, cuda_job(2, {})));
  EXPECT_NE(result.status, 0);
  expect_contains(result.err, "ranks 0 and 1 have the same GPU");
}

}  // namespace
}  // namespace tessera
