// What keeps a run from being lost, in jobs of real processes: each fault of --inject as a drill.
#include <regex>

#include "base/exit_status.h"
#include "base/process_identity.h"
#include "tests/apps/ranks_fixture.h"
#include "tests/base/comes_true.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

class Guards : public Ranks {
 protected:
  // The drill of docs/guards.md with two ranks that start again after it: the losses are those of
  // an undisturbed job.
  ProgramResult drill(const Words& faults, const Words& more = {}) {
    const Words saving{"--checkpoint_freq", "2", "--async_checkpoint", "off"};
    run_ranks(2, job(1, saving + Words{"--checkpoint_dir", "straight_ckpt", "--metrics_file",
                                       "straight"}));
    const Words words = agent(
        2, job(1, saving + more +
                      Words{"--checkpoint_dir", "ckpt", "--metrics_file", "drilled", "--inject"} +
                      faults));
    Words restarts = words;
    restarts.insert(restarts.begin() + 1, {"--max_restarts", "1"});
    ProgramResult result = run(restarts);
    EXPECT_EQ(result.status, 0) << result.err;
    for (const std::string& fault : faults)
      expect_contains(result.err, cat("--inject ", fault, ": now"));
    EXPECT_EQ(last_losses("drilled"), last_losses("straight"));
    return result;
  }

  // Of every step the loss that was written last.
  std::map<int64_t, std::string> last_losses(const std::string& file) const {
    std::map<int64_t, std::string> found;
    const std::string text = read_file(path(file));
    for (std::string_view line : split(text, '\n')) {
      if (line.empty()) continue;
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) found[json.at("batch").get<int64_t>()] = json.at("loss").dump();
    }
    return found;
  }

  static int count(const std::string& text, const std::string& part) {
    int times = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++times;
    return times;
  }
};

TEST_F(Guards, AStepThatHangsEndsTheProgram) {
  const Words words = train({"--max_steps", "5", "--run_validation", "0"});
  const ProgramResult stuck = run(words + Words{"--step_timeout", "3", "--inject", "stall@step=2"});
  EXPECT_EQ(stuck.status, kStalledStatus) << stuck.err;
  EXPECT_EQ(stuck.message(),
            "tessera: no step was done for 3 s (--step_timeout): step 2, computing gradients");
  const ProgramResult first =
      run(words + Words{"--first_step_timeout", "0.5", "--inject", "stall@step=0"});
  EXPECT_EQ(first.status, kStalledStatus);
  expect_contains(first.message(), "0.5 s (--first_step_timeout): step 0");
  // One that only takes its time does not.
  const ProgramResult slow =
      run(words + Words{"--step_timeout", "60", "--inject", "stall@step=2,seconds=0.5"});
  EXPECT_EQ(slow.status, 0) << slow.err;
}

TEST_F(Guards, TimeInWhichTheProcessIsStoppedDoesNotCount) {
  const pid_t pid = start(train({"--max_steps", "100000", "--epochs", "100000", "--run_validation",
                                 "0", "--step_timeout", "3", "--metrics_file", "m"}));
  wait_for("m", "\"batch\":3,");
  ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(4000));
  ::kill(pid, SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(finish(pid).status, kInterruptedStatus);
}

TEST_F(Guards, TheRankThatHangsIsNamedOnAll) {
  const ProgramResult result = run(agent(2, job(1, {"--step_timeout", "4", "--metrics_file", "m",
                                                    "--inject", "stall@rank=1,step=3"})));
  EXPECT_TRUE(result.status == kStalledStatus || result.status == kFailureStatus) << result.err;
  expect_contains(result.err, cat("[rank 1] tessera: rank 1 on ", host_name(),
                                  ": no step was done for 4 s (--step_timeout): step 3"));
  expect_lacks(result.err, "[rank 0] tessera: rank 0");
}

TEST_F(Guards, DrillKill) {
  const ProgramResult result = drill({"kill@rank=1,step=5"});
  expect_contains(result.err, "rank 1 failed first: killed by signal 9");
  expect_contains(result.err, "Checkpoint loaded from ckpt/llama_v2-4steps.");
  int fired = 0;  // the report of the failure quotes it
  for (std::string_view line : split(result.err, '\n'))
    fired += line.starts_with("[rank 1] 2") && line.ends_with(": now, at step 5") ? 1 : 0;
  EXPECT_EQ(fired, 1) << "not again after the restart: " << result.err;
}

TEST_F(Guards, DrillStall) {
  const ProgramResult result = drill({"stall@rank=1,step=5"}, {"--step_timeout", "4"});
  expect_contains(result.err, "no step was done for 4 s");
}

TEST_F(Guards, DrillDrop) {
  for (const char* transport : {"shared_memory", "gloo"}) {
    std::filesystem::remove_all(path("ckpt"));
    std::filesystem::remove_all(path("straight_ckpt"));
    for (const char* file : {"straight", "drilled"}) std::filesystem::remove(path(file));
    const ProgramResult result =
        drill({"drop@rank=1,step=5"}, {"--distributed_backend", transport});
    EXPECT_TRUE(std::regex_search(result.err, std::regex("rank [01] was lost"))) << result.err;
  }
}

TEST_F(Guards, DrillCorruptCheckpoint) {
  const ProgramResult result =
      drill({"corrupt@rank=1,step=4,what=checkpoint", "kill@rank=1,step=5"});
  expect_contains(result.err, "Skipping 'ckpt/llama_v2-4steps' on all ranks");
  expect_contains(result.err, "Checkpoint loaded from ckpt/llama_v2-2steps.");
}

TEST_F(Guards, DrillSlow) {
  const ProgramResult result =
      drill({"slow@rank=1,step=2,steps=6,seconds=0.5"}, {"--straggler_interval", "4"});
  expect_contains(result.err, cat("rank 1 on ", host_name(), " is slow: compute takes "));
  expect_contains(read_file(path("drilled")), "\"slowest_rank\":1,");
  expect_contains(read_file(path("drilled")), "\"slowest_phase\":\"compute\"");
  expect_contains(read_file(path("drilled")), "\"straggler\":true");
}

// Each whole interval has its line, the last one as well, however soon the run ends behind it.
TEST_F(Guards, EveryIntervalOfStragglersIsTold) {
  for (int interval : {1, 4, 8}) {
    SCOPED_TRACE(interval);
    const std::string file = cat("m", interval);
    run_ranks(2, job(1, {"--straggler_interval", cat(interval), "--metrics_file", file}));
    EXPECT_EQ(count(read_file(path(file)), "\"slowest_rank\""), kSteps / interval);
  }
  const pid_t pid =
      start(agent(2, job(1, {"--max_steps", "100000", "--epochs", "100000", "--metrics_file",
                             "interrupted", "--straggler_interval", "1"})));
  wait_for("interrupted", "\"batch\":3,");
  ::kill(pid, SIGTERM);
  EXPECT_EQ(finish(pid).status, kInterruptedStatus);
  const std::string lines = read_file(path("interrupted"));
  EXPECT_EQ(count(lines, "\"slowest_rank\""), count(lines, "\"loss\""));
}

// Both ranks skip the update, and say so in one line.
TEST_F(Guards, DrillNan) {
  // Parts of one gradient, copies of it, and both with others between.
  const std::vector<Words> meshes{{},
                                  {"--sharding_strategy", "no_shard"},
                                  {"--tensor_parallel_degree", "2"},
                                  {"--sharding_strategy", "no_shard", "--lora_rank", "2"}};
  for (const char* fault : {"nan", "corrupt"}) {
    for (const Words& mesh : meshes) {
      SCOPED_TRACE(cat(fault, " ", join(mesh, " ")));
      std::filesystem::remove(path("m"));
      const ProgramResult result = run_ranks(
          2, job(1, mesh + Words{"--metrics_file", "m", "--inject", cat(fault, "@rank=1,step=3")}));
      EXPECT_EQ(count(result.err, "the update was skipped"), 1) << result.err;
      expect_contains(result.err, "(on 2 ranks)");
      const std::string steps = read_file(path("m"));
      expect_contains(split(steps, '\n').at(3), "\"ok\":false");
    }
  }
}

TEST_F(Guards, TheHeartbeatIsRankZeros) {
  run_ranks(2, job(1, {"--heartbeat_file", "heart"}));
  const auto beat = nlohmann::json::parse(read_file(path("heart")));
  EXPECT_EQ(beat.at("state"), "finished");
  EXPECT_EQ(beat.at("step"), kSteps);
  const ProgramResult failed =
      run(train({"--max_steps", "5", "--heartbeat_file", "heart", "--max_skipped_steps", "1",
                 "--inject", "corrupt@step=1,what=weights", "nan@step=2", "nan@step=3"}));
  EXPECT_EQ(failed.status, kFailureStatus) << failed.err;
  EXPECT_EQ(nlohmann::json::parse(read_file(path("heart"))).at("state"), "failed");
}

// A job on text of which one window stands out.
class Spikes : public Guards {
 protected:
  Spikes() {
    std::string text;
    while (text.size() < 2000) text += "abcd efgh ijkl ";
    text.replace(1500, 15, "\x01Q\x02Z\x03X\x04J\x05K\x06V\x07W\x08");
    write("text.txt", text);
  }
  const Words words{"--lr_decay_iters",
                    "80",
                    "--max_steps",
                    "55",
                    "--loss_spike_threshold",
                    "10",
                    "--validation_fraction",
                    "0",
                    "--loss_spike_window",
                    "16",
                    "--checkpoint_freq",
                    "10",
                    "--bf16",
                    "0"};
};

// Ranks agree on what is a spike and what becomes of it.
TEST_F(Spikes, AreUndoneOnAllRanks) {
  const ProgramResult two =
      run_ranks(2, job(1, words + Words{"--metrics_file", "two", "--checkpoint_dir", "two_ckpt",
                                        "--loss_spike_policy", "rewind"}));
  EXPECT_EQ(count(two.err, "went back to 'two_ckpt/llama_v2-"), 1) << two.err;
  const ProgramResult one = run(job(2, words + Words{"--metrics_file", "one", "--checkpoint_dir",
                                                     "one_ckpt", "--loss_spike_policy", "rewind"}));
  EXPECT_EQ(one.status, 0) << one.err;
  Words of_one = losses("one"), of_two = losses("two");
  EXPECT_GT(of_one.size(), 55u);
  expect_close(of_one, of_two, 1e-4);
}

// What is to be gone back to comes from a server that does not answer.
TEST_F(Spikes, ARequestWhileThereIsAWayBackSavesOnAllRanks) {
  const LocalServer server;
  server.write("s3.json", R"({"shut": "/llama_v2-"})");
  const pid_t agent_of_two =
      start(agent(2, job(1, words + Words{"--metrics_file", "metrics", "--checkpoint_dir", "last",
                                          "s3://bucket/run", "--checkpoint_freq", "1000", "10",
                                          "--loss_spike_policy", "rewind"})),
            [&] {
              ::setenv("AWS_ENDPOINT_URL_S3", server.url("/s3").c_str(), 1);
              ::setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
              ::setenv("AWS_SECRET_ACCESS_KEY", "secret/key+example", 1);
            });
  EXPECT_TRUE(comes_true([&] { return !server.requests("GET /s3/bucket/run/llama_v2-").empty(); }));
  ::kill(agent_of_two, SIGTERM);
  const ProgramResult result = finish(agent_of_two);
  EXPECT_EQ(result.status, 143) << result.err;
  expect_contains(result.err, "the run ends before it has gone back: the update was skipped");
  EXPECT_EQ(names("last"), std::set{cat("llama_v2-", losses("metrics").size(), "steps")});
}

}  // namespace
}  // namespace tessera
