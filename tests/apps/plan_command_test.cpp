// `tessera plan` as a user meets it: budgets, what else would fit, other devices, the last line.
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class PlanCommand : public ProgramTest {
 protected:
  ProgramResult plan(const Words& more) { return run(Words{"plan"} + tiny_shape() + more); }

  // The text without the times that passes took.
  static std::string without_times(const std::string& text) {
    return std::regex_replace(text, std::regex(R"( +[0-9.]+ ms  )"), " ");
  }
  static std::string last_line(const std::string& text) {
    return std::string(split(trim(text), '\n').back());
  }
  // The first group of the expression's first match.
  static std::string match(const std::string& text, const std::string& expression) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(text, found, std::regex(expression))) << expression << text;
    return found.size() > 1 ? found[1].str() : "";
  }
  // The lines of options that a report names.
  static std::vector<Words> suggestions(const std::string& text) {
    std::vector<Words> found;
    for (std::string_view line : split(text, '\n')) {
      if (!line.starts_with("  --")) continue;
      Words words;
      for (std::string_view word : split(trim(line), ' ')) words.emplace_back(word);
      found.push_back(words);
    }
    return found;
  }
};

TEST_F(PlanCommand, SaysWhatHybridShardingBecame) {
  ProgramResult uneven =
      plan({"--world", "7", "--ranks_per_host", "2", "--sharding_strategy", "hsdp"});
  expect_contains(uneven.out, "World: 7 ranks, replicate 7");
  expect_contains(uneven.err, "which do not divide 7, those of all hosts, so nothing is sharded");
}

TEST_F(PlanCommand, BudgetsOfDeviceAndHostAreTwo) {
  Words job{"--world",   "8", "--ranks_per_host", "4",   "--cpu_offload", "1",
            "--threads", "1", "--cpu_isa",        "avx2"};
  std::string text = plan(job).out;
  expect_contains(text, "No limit was given");
  EXPECT_EQ(match(text, R"(far, of a host +\S+ \S+  (\d+) ranks)"), "4");
  // 306 KiB near and 128 KiB far a rank.
  ProgramResult near = plan(job + Words{"--memory", "350KiB"});
  EXPECT_EQ(near.status, 0) << near.out;
  EXPECT_TRUE(last_line(near.out).starts_with("Fits in --memory 350.0 KiB: ")) << near.out;
  ProgramResult both = plan(job + Words{"--memory", "350KiB", "--host_memory", "1MiB"});
  EXPECT_EQ(both.status, 0) << both.out;
  expect_contains(last_line(both.out), "Fits in --host_memory 1.00 MiB, 4 ranks: ");
  ProgramResult far = plan(job + Words{"--memory", "500KiB", "--host_memory", "100KiB"});
  EXPECT_EQ(far.status, 1) << far.out;
  expect_contains(far.out, "\nFits in --memory 500.0 KiB: ");
  expect_contains(last_line(far.out), "Does not fit: ");
  expect_contains(last_line(far.out), " more than --host_memory 100.0 KiB, 4 ranks");
  expect_contains(far.out, "--cpu_offload False");

  // A run obeys the same two.
  Words offloaded{"--cpu_offload", "1", "--max_steps", "1"};
  EXPECT_EQ(run(train(offloaded + Words{"--memory", "700KiB"})).status, 0);
  ProgramResult refused = run(train(offloaded + Words{"--host_memory", "100KiB"}));
  EXPECT_EQ(refused.status, 1);
  expect_contains(refused.message(), "more than --host_memory 100.0 KiB");
}

TEST_F(PlanCommand, CountsWhatCheckpointsMustBeWrittenFrom) {
  const Words saves{"--checkpoint_dir", "ckpt", "--threads", "2"}, on{"--async_checkpoint", "on"};
  const std::string text = plan(saves + on).out;
  auto kib = [&](const std::string& label) {
    return std::stod(match(text, label + R"( +(\S+) KiB)"));
  };
  const double total = kib("total"), staging = kib("beside it");
  EXPECT_NEAR(staging, kib(R"(parameters \(f32\))") + kib(R"(moments \(f32\))"), 0.2);
  expect_contains(last_line(text), "--async_checkpoint auto can do without");
  const auto limit = static_cast<int64_t>(total + staging / 2);
  const Words memory{"--memory", cat(limit, "KiB")};
  EXPECT_EQ(plan(saves + memory).status, 0);
  EXPECT_EQ(plan(on + memory).status, 0) << "nothing is saved";
  EXPECT_EQ(plan(saves + on + Words{"--memory", cat(limit + std::lround(staging), "KiB")}).status,
            0);
  ProgramResult refused = plan(saves + on + memory);
  EXPECT_EQ(refused.status, 1);
  expect_contains(last_line(refused.out), "--async_checkpoint auto can do without");
  // As training does.
  ProgramResult trained = run(train(saves + on + memory));
  EXPECT_EQ(trained.status, 1);
  expect_contains(trained.message(), ": --async_checkpoint auto needs ");
  EXPECT_EQ(run(train(saves + memory + Words{"--max_steps", "1"})).status, 0);
}

TEST_F(PlanCommand, DocumentsAreAnArgumentAndCountAsOne) {
  ProgramResult plain = plan({}), masked = plan({"--document_mask", "1"});
  EXPECT_EQ(masked.status, 0);
  expect_contains(masked.out, "Attention is counted over whole windows");
  const std::string flops = R"(Arithmetic: (\S+) FLOP)";
  EXPECT_EQ(match(masked.out, flops), match(plain.out, flops));
}

TEST_F(PlanCommand, NamesWhatNoKernelTakesAsTrainingDoes) {
  Words wide_heads{"--hidden_width", "640", "--num_heads", "2", "--max_steps", "1"};
  EXPECT_EQ(plan({}).out.find("Without a kernel"), std::string::npos);
  expect_contains(
      plan(wide_heads).out,
      "\nWithout a kernel; the definition runs, which may take memory and time of another "
      "order:\n  attention x 6: heads of at most 256 elements");
  ProgramResult result = run(train(wide_heads));
  EXPECT_EQ(result.status, 0);
  expect_contains(result.err, "No kernel takes attention x 6: heads of at most 256 elements");
}

TEST_F(PlanCommand, EveryWayOutThatItNamesIsOne) {
  struct Case {
    const char* what;
    Words options;
  };
  const Words wide{"--max_context_width", "512", "--num_layers", "6"};
  for (const Case& c :
       {Case{"recomputation", wide + Words{"--activation_checkpointing", "0", "--memory", "9MiB"}},
        {"no sharding", {"--world", "4", "--sharding_strategy", "no_shard", "--memory", "500KiB"}},
        {"two hosts", wide + Words{"--world", "4", "--ranks_per_host", "2", "--sharding_strategy",
                                   "hybrid_shard", "--memory", "1200KiB"}},
        {"many layers", {"--num_layers", "20", "--world", "2", "--memory", "1500KiB"}},
        {"a deep layer adapted",
         {"--num_layers", "20", "--lora_rank", "2", "--lora_targets", "layers.19.self_attn.q_proj",
          "--activation_checkpointing", "0", "--memory", "500KiB"}}}) {
    SCOPED_TRACE(c.what);
    ProgramResult before = plan(c.options);
    ASSERT_EQ(before.status, 1) << before.out;
    std::vector<Words> ways = suggestions(before.out);
    EXPECT_FALSE(ways.empty()) << before.out;
    for (const Words& way : ways) {
      ProgramResult after = plan(c.options + way);
      EXPECT_EQ(after.status, 0) << join(way, " ") << before.out << after.out << after.err;
      EXPECT_TRUE(last_line(after.out).starts_with("Fits in --memory")) << after.out;
    }
  }
}

// Fewer ranks then share the state than --shard_degree says.
TEST_F(PlanCommand, CutsLayersWhereAllRanksShareTheState) {
  Words job;
  for (std::string_view word :
       split("--hidden_width 64 --intermediate_size 512 --num_layers 6 --vocab_size 2570 "
             "--max_context_width 64 --train_batch_size 1 --world 4 --shard_degree 4 "
             "--cpu_isa avx2 --threads 1 --memory 1800KiB",
             ' '))
    job.emplace_back(word);
  const ProgramResult before = plan(job);
  ASSERT_EQ(before.status, 1) << before.out;
  bool cuts = false;
  for (const Words& way : suggestions(before.out)) {
    cuts = cuts ||
           join(way, " ").find("--shard_degree 2 --tensor_parallel_degree 2") != std::string::npos;
    EXPECT_EQ(plan(job + way).status, 0) << join(way, " ");
  }
  EXPECT_TRUE(cuts) << before.out;
}

TEST_F(PlanCommand, SaysOfTheRatesWhatTrainingDoes) {
  const Words late{"--warmup", "0.4", "--max_steps", "2"};
  const std::string warning = "far above --min_lr 1e-05: give a --warmup below 0.4";
  expect_contains(run(train(late)).err, warning);
  expect_contains(plan(late).err, warning);
  expect_lacks(plan({}).err, "--warmup");
  expect_lacks(plan(late + Words{"--eval_only", "1"}).err, "--warmup");
}

TEST_F(PlanCommand, NamesWhatIsCheaperWhereMuchIsLeft) {
  Words job{"--world", "4",        "--cpu_offload", "1", "--gradient_accumulation_steps",
            "4",       "--memory", "100MiB"};
  ProgramResult before = plan(job);
  ASSERT_EQ(before.status, 0) << before.out;
  expect_contains(before.out, "\nCheaper, and fits as well");
  std::vector<Words> ways = suggestions(before.out);
  ASSERT_FALSE(ways.empty()) << before.out;
  for (const Words& way : ways) EXPECT_EQ(plan(job + way).status, 0) << join(way, " ");
  std::string all = join(ways.front(), " ");
  for (const char* option : {"--cpu_offload False", "--activation_checkpointing False"})
    expect_contains(all, option);
  // Nothing is said where the memory is well used.
  expect_lacks(plan({"--memory", "1MiB"}).out, "Cheaper");
}

TEST_F(PlanCommand, AnEvaluationHoldsWeightsOnly) {
  std::string text = plan({"--eval_only", "1", "--val_batch_size", "3"}).out;
  expect_contains(text, "\nEvaluation: 3 windows of ");
  expect_contains(text, "\n  parameters (bf16) ");
  for (const char* word :
       {"moments", "gradients", "\nStep: ", "accumulate", "apply", "Recomputation"})
    expect_lacks(text, word);
  std::string training = plan({}).out;
  EXPECT_EQ(std::stod(match(text, R"(parameters \(bf16\) +(\S+) KiB)")),
            std::stod(match(training, R"(parameters \(f32\) +(\S+) KiB)")) / 2);
}

TEST_F(PlanCommand, AnyInstructionSetIsPlannedAnywhere) {
  std::set<std::string> totals;
  for (const char* isa : {"portable", "avx2", "avx512", "avx512_bf16", "amx"}) {
    for (const char* bf16 : {"0", "1"}) {
      ProgramResult result =
          plan({"--cpu_isa", isa, "--threads", "3", "--bf16", bf16, "--max_context_width", "128"});
      EXPECT_EQ(result.status, 0) << isa << result.err;
      expect_contains(result.out, cat("\nDevice: CPU, ", isa, ", 3 threads a rank"));
      totals.insert(match(result.out, R"(total +\S+ \S+ +(\d+) bytes)"));
    }
  }
  EXPECT_GT(totals.size(), 4u) << "kernels of different sets want different workspaces";
  std::string best = match(run({"version"}).out, R"(instruction set (\w+))");
  if (best != "amx") {
    ProgramResult refused = run(train({"--cpu_isa", "amx", "--max_steps", "1"}));
    EXPECT_EQ(refused.status, 1);
    expect_contains(refused.message(), "this machine has no amx");
  }
}

TEST_F(PlanCommand, APlanForAnotherDeviceHasNothingOfThisMachine) {
  std::string one = without_times(plan({"--device_type", "cuda"}).out);
  expect_contains(one, "\nDevice: NVIDIA H100 ");
  for (const char* word : {"to the byte what", "CPU"}) expect_lacks(one, word);
  const std::string xla = plan({"--device_type", "xla"}).out;
  expect_contains(xla, "an estimate without the workspaces of kernels");
  for (const char* word : {"to the byte", "\n  workspace ", "CPU"}) expect_lacks(xla, word);
  for (const Words& here : {Words{"--threads", "5"}, Words{"--cpu_isa", "portable"},
                            Words{"--cpu_isa", "amx", "--threads", "64"}}) {
    EXPECT_EQ(without_times(plan(Words{"--device_type", "cuda"} + here).out), one);
  }
}

TEST_F(PlanCommand, PlansTheThreadsThatRanksOfAHostHave) {
  Words job{"--world", "2", "--max_context_width", "128"};
  std::string planned = match(plan(job).out, R"(total +(\S+ \S+) +\d+ bytes)");
  Words words{"run", "--standalone", "--nproc_per_node", "2", "train"};
  words =
      words + tiny_shape() +
      Words{
          "--dataset",   "text.txt", "--tokenizer",           "byte", "--max_context_width", "128",
          "--max_steps", "1",        "--peak_tflops_per_gpu", "1"};
  ProgramResult trained = run(words);
  EXPECT_EQ(trained.status, 0) << trained.err;
  expect_contains(trained.err, cat("planned = allocated = ", planned, " "));
}

TEST_F(PlanCommand, SaysTheWorldAndJudgesLast) {
  expect_contains(plan({}).out, "\nWorld: one rank (--world)\n");
  std::string text =
      plan({"--world", "8", "--tensor_parallel_degree", "2", "--memory", "1GiB"}).out;
  expect_contains(text, "\nWorld: 8 ranks, shard 4 x tp 2, 8 on a host");
  expect_contains(text, "on each of 4 ranks");
  EXPECT_TRUE(last_line(text).starts_with("Fits in --memory 1.00 GiB: ")) << text;
  // A token costs the model the same on however many ranks, but for what all of them do.
  auto of_token = [&](const char* degree) {
    return std::stod(
        match(plan({"--world", "4", "--tensor_parallel_degree", degree, "--hidden_width", "256",
                    "--intermediate_size", "1024", "--vocab_size", "4096"})
                  .out,
              R"(; (\S+) a token on all ranks together)"));
  };
  EXPECT_NEAR(of_token("2") / of_token("1"), 1, 0.05);
}

TEST_F(PlanCommand, SetsRecomputationBesideTheRunWithoutIt) {
  for (const Words& more : {Words{}, Words{"--world", "2", "--cpu_offload", "1"}}) {
    std::string with = plan(more).out;
    std::string without = plan(more + Words{"--activation_checkpointing", "0"}).out;
    std::string near = more.empty() ? R"(total +(\S+ \S+))" : R"(of it near +(\S+ \S+))";
    EXPECT_EQ(match(with, R"(a rank needs (\S+ \S+), )"), match(with, near));
    EXPECT_EQ(match(with, R"(without it (\S+ \w+))"), match(without, near));
    expect_lacks(without, "Recomputation");
  }
}

TEST_F(PlanCommand, SaysWhetherTheArithmeticHidesTheTransfers) {
  Words job{"--world", "4", "--ranks_per_host", "2", "--cpu_offload", "1"};
  std::string slow = plan(job + Words{"--network_bandwidth", "1KB"}).out;
  expect_contains(slow, "sending to other hosts");
  expect_contains(slow, "at 1e-06 GB/s a rank (--network_bandwidth)");
  expect_contains(slow, "\nNot hidden: sending to other hosts takes ");
  expect_contains(slow, " longer than the arithmetic can hide");
  Words fast{"--network_bandwidth", "1000000GB", "--peer_bandwidth",      "1000000GB",
             "--host_bandwidth",    "1000000GB", "--peak_tflops_per_gpu", "0.001"};
  std::string hidden = plan(job + fast).out;
  expect_contains(hidden, "at 0.001 TFLOP/s (--peak_tflops_per_gpu)");
  expect_contains(hidden, "\nThe arithmetic can hide all transfers.\n");
  std::string one_host = plan({"--world", "4"}).out;
  expect_contains(one_host, "sending within a host");
  expect_lacks(one_host, "sending to other hosts");
  expect_lacks(plan({}).out, "hide");
}

TEST_F(PlanCommand, FrozenParametersCountLess) {
  std::string all = plan({}).out, frozen = plan({"--freeze", "model.layers.*"}).out;
  expect_contains(all, "(6 x parameters = ");
  double of_all = std::stod(match(all, R"(\(6 x parameters = (\S+)\))"));
  double of_some = std::stod(match(frozen, R"(2 x other frozen parameters = (\S+)\))"));
  // 2 layers of 4 x 32 x 32 - 2 x 32 x 16 + 3 x 32 x 64 + 2 x 32 elements are frozen.
  EXPECT_NEAR(of_all - of_some, 2.0 * 2 * 9280, 100);
}

// The figures that the README shows are those that its command prints.
TEST_F(PlanCommand, PrintsTheFiguresOfTheReadme) {
  std::string readme = read_file(std::filesystem::path(TESSERA_SOURCE_DIR) / "README.md");
  std::string line = match(readme, R"(    tessera (plan --world 512 [^#\n]*[^# \n]))");
  std::string more = match(readme, R"(for any device \(here `([^`]*)`)");
  Words words;
  const std::string command = line + " " + more;
  for (std::string_view word : split(command, ' ')) words.emplace_back(word);
  ProgramResult result = run(words);
  ASSERT_EQ(result.status, 0) << result.err;
  size_t begin = readme.find("\nMemory of one rank");
  ASSERT_NE(begin, std::string::npos);
  std::string block = readme.substr(begin, readme.find("```", begin) - begin);
  for (std::string_view shown : split(trim(block), '\n'))
    expect_contains(result.out, cat("\n", shown));
}

// Its arena is the larger one: a wide MLP, and one window a step.
TEST_F(PlanCommand, AValidationThatIsTooLargeIsDoneInMoreBatches) {
  const Words wide{"--intermediate_size", "2048", "--max_context_width", "128",
                   "--train_batch_size",  "1",    "--threads",           "1"};
  auto total = [&](const Words& more) {
    return std::stoll(match(plan(wide + more).out, R"(total +\S+ \S+ +(\d+) bytes)"));
  };
  const int64_t four = total({}), two = total({"--val_batch_size", "2"});
  ASSERT_LT(two, four);
  const Words memory{"--memory", cat(two)};
  ProgramResult planned = plan(wide + memory);
  EXPECT_EQ(planned.status, 1);
  ASSERT_FALSE(suggestions(planned.out).empty()) << planned.out;
  const Words first = suggestions(planned.out).front();
  EXPECT_EQ(join(first, " "), "--validation_batches 20 --val_batch_size 2");
  EXPECT_EQ(plan(wide + memory + first).status, 0);
  // As training says.
  const Words trained = train(wide + Words{"--max_steps", "1"} + memory);
  expect_contains(run(trained).message(),
                  ": what would fit: --validation_batches 20 --val_batch_size 2 plans ");
  EXPECT_EQ(run(trained + first).status, 0);

  // Nor is there anything of a validation that nobody asks for.
  const Words none{"--run_validation", "0"};
  EXPECT_LT(total(none), two);
  expect_lacks(plan(wide + none).out, "\n  evaluate: ");
  for (const Words& asks :
       {Words{"--validation_freq", "5"}, {"--compare_baselines", "1"}, {"--eval_only", "1"}})
    expect_contains(plan(wide + none + asks).out, "\n  evaluate: ");
  expect_contains(run(train(wide + none + Words{"--max_steps", "1"})).err,
                  cat("planned = allocated = ", format_bytes(total(none)), " "));
}

// A rank of a job can plan for its own number of ranks only.
TEST_F(PlanCommand, RanksThatAreRefusedSayWhatWouldFitOnThem) {
  auto refusal = [&](const char* memory) {
    ProgramResult result = run(Words{"run", "--standalone", "--nproc_per_node", "2"} +
                               train({"--vocab_size", "20000", "--memory", memory}));
    EXPECT_EQ(result.status, 1);
    return result.err;
  };
  const std::string most = refusal("9MiB");
  expect_contains(most, " more than --memory 9.00 MiB: what would fit: --");
  expect_contains(most, "--cpu_offload True plans ");
  expect_lacks(most, " ranks plans ");
  expect_contains(refusal("1KiB"),
                  " sharding or offload makes it fit: take a smaller model or "
                  "window, or more ranks");
}

}  // namespace
}  // namespace tessera
