// `--device_type xla` as users have it. Needs a plug-in of XLA's CPU.
#include <sys/resource.h>

#include "tests/apps/ranks_fixture.h"
#include "tests/backends/xla/xla_plugin.h"

namespace tessera {
namespace {

class XlaProgram : public Ranks {
 protected:
  void SetUp() override {
    auto plugin = xla::plugin_of_tests();
    if (!plugin) GTEST_SKIP() << "no plug-in of XLA's CPU: tools/packages install xla";
    xla_ = {"--device_type", "xla", "--xla_plugin", plugin->string()};
  }
  // Losses of a run of so many steps that succeeds.
  Words trained(const Words& words, const std::string& metrics) {
    ProgramResult result = run(words + Words{"--metrics_file", metrics});
    EXPECT_EQ(result.status, 0) << result.err;
    return losses(metrics);
  }
  const Words f32_{"--bf16", "0"};
  Words xla_;
};

TEST_F(XlaProgram, ContinuesACheckpointOfTheCpuAndBack) {
  auto part = [&](int end, const Words& device, const std::string& metrics) {
    return trained(train(f32_ + Words{"--max_steps", cat(end), "--run_validation", "0",
                                      "--checkpoint_dir", "ckpt", "--resume_from_checkpoint",
                                      "ckpt", "--peak_tflops_per_gpu", "1"}) +
                       device,
                   metrics);
  };
  Words parts = part(4, {}, "a.jsonl");
  parts = parts + part(8, xla_, "b.jsonl");
  parts = parts + part(12, {}, "c.jsonl");
  expect_close(
      parts, trained(train(f32_ + Words{"--max_steps", "12", "--run_validation", "0"}), "d.jsonl"),
      1e-5);
  // The next start has its programs from the cache.
  EXPECT_FALSE(names("cache/xla").empty());

  const Words evaluate = train(f32_ + Words{"--eval_only", "--resume_from_checkpoint", "ckpt"});
  const ProgramResult cpu = run(evaluate), xla = run(evaluate + xla_);
  EXPECT_EQ(xla.status, 0) << xla.err;
  auto loss_of = [](const ProgramResult& result) {
    const size_t at = result.err.find("Validation loss: ");
    EXPECT_NE(at, std::string::npos) << result.err;
    return at == std::string::npos ? 0 : std::stod(result.err.substr(at + 17));
  };
  EXPECT_NEAR(loss_of(xla), loss_of(cpu), 1e-4);

  const Words generate{"generate",         "ckpt", "--prompt",      "the quick",
                       "--max_new_tokens", "8",    "--temperature", "0"};
  const ProgramResult text = run(generate + xla_);
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out, run(generate).out);
}

TEST_F(XlaProgram, TrainsOnSeveralRanks) {
  const Words one = trained(job(4, f32_), "one.jsonl");
  int number = 0;
  for (const Words& spread :
       {Words{}, Words{"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"},
        Words{"--tensor_parallel_degree", "2"}}) {
    const std::string metrics = cat(++number, ".jsonl");
    const bool tensor = !spread.empty() && spread[0] == "--tensor_parallel_degree";
    run_ranks(4, job(tensor ? 2 : 1, spread + xla_ + f32_ + Words{"--metrics_file", metrics}));
    expect_close(losses(metrics), one, 1e-5);
  }
}

// Dropout of the adapters drops the same elements.
TEST_F(XlaProgram, FineTunesAsTheCpuDoes) {
  const Words job =
      train(f32_ + Words{"--max_steps", "6", "--run_validation", "0", "--lora_rank", "4",
                         "--lora_dropout", "0.1", "--gradient_accumulation_steps", "2",
                         "--loss_spike_policy", "warn"});
  expect_close(trained(job + xla_, "xla.jsonl"), trained(job, "cpu.jsonl"), 1e-5);
}

// A row a program, as XLA says when one is done and no more.
TEST_F(XlaProgram, TracesHaveARowAProgram) {
  const ProgramResult result =
      run(train(f32_ + Words{"--max_steps", "4", "--run_validation", "0", "--use_profiler", "1",
                             "--profiler_wait", "1", "--profiler_warmup", "1", "--profiler_active",
                             "2", "--profile_dir", "traces"}) +
          xla_);
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string trace = read_file(path("traces/rank0.2.pt.trace.json"));
  for (const char* program : {"accumulate_first", "apply"})
    EXPECT_NE(trace.find(cat("\"name\":\"run of ", program, "\",\"cat\":\"cpu_op\"")), trace.npos);
  EXPECT_NE(trace.find("\"share_of_light\":"), trace.npos);
  const ProgramResult report = run({"profile", "report", "traces"});
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_NE(report.out.find("accumulate_first"), std::string::npos) << report.out;
}

TEST_F(XlaProgram, NamesARankThatIsKilled) {
  const ProgramResult result =
      run(agent(2, job(2, xla_ + Words{"--inject", "kill@rank=1,step=3"})));
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
}

// XLA allocates what the program takes only when it runs, so its own refusal comes late.
TEST_F(XlaProgram, SaysThatMemoryIsGone) {
  auto limited = [] {
    rlimit limit{1100 << 20, 1100 << 20};
    ::setrlimit(RLIMIT_AS, &limit);
  };
  const Words large =
      train(f32_ + Words{"--max_steps", "1", "--vocab_size", "32000", "--max_context_width", "2048",
                         "--train_batch_size", "8", "--run_validation", "0"}) +
      xla_;
  ProgramResult result = run(large, limited);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.message().find("not enough memory: a rank needs "), std::string::npos)
      << result.err;
  result = run(large + Words{"--memory", "10GB"}, limited);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.message().find("XLA says: "), std::string::npos) << result.err;
  EXPECT_NE(result.message().find("Lower --train_batch_size"), std::string::npos) << result.err;
}

TEST_F(XlaProgram, SaysWhatItCannotDo) {
  auto message = [&](const Words& more) {
    const ProgramResult result = run(train({"--max_steps", "2"}) + xla_ + more);
    EXPECT_EQ(result.status, 1) << result.err;
    return result.message();
  };
  write("no.so", "nothing");
  EXPECT_NE(message({"--xla_plugin", "no.so"}).find("cannot load XLA's plug-in"),
            std::string::npos);
  EXPECT_NE(message({"--hash_file", "hashes"}).find("--hash_file"), std::string::npos);
  const ProgramResult far = run(train({"--max_steps", "2", "--cpu_offload", "1"}) + xla_);
  EXPECT_EQ(far.status, 2);
  expect_contains(far.message(), "--cpu_offload is for --device_type cpu and cuda");
}

}  // namespace
}  // namespace tessera
