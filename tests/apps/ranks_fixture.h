#pragma once
#include "tests/apps/program_fixture.h"
#include "tests/comm/free_port.h"

namespace tessera {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Jobs of several ranks as real processes, by `tessera run` and by hand.
class Ranks : public ProgramTest {
 protected:
  static constexpr int kGlobalBatch = 4, kSteps = 8;

  // `rows` windows a data-parallel rank; no time for a measurement of the machine's peak.
  static Words job(int rows, const Words& more = {}) {
    return train({"--train_batch_size", cat(rows), "--threads", "1", "--peak_tflops_per_gpu", "1",
                  "--max_steps", cat(kSteps), "--run_validation", "0", "--comm_timeout", "60"}) +
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
                   const std::string& tag = "", const std::string& folder = ".") {
    Variables all{{"RANK", cat(rank)},
                  {"LOCAL_RANK", cat(rank)},
                  {"WORLD_SIZE", cat(world)},
                  {"LOCAL_WORLD_SIZE", cat(world)},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", cat(port)},
                  {"TESSERA_JOB_TOKEN", "secret"}};
    all.insert(all.end(), more.begin(), more.end());
    auto set = [all, folder] {
      if (::chdir(folder.c_str()) != 0) ::_exit(126);
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

}  // namespace tessera
