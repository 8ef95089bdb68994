// The commands as a user meets them, on a tiny model.

#include <gtest/gtest.h>

#include <regex>

#include "base/thread_stacks.h"
#include "tests/apps/program_fixture.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

using Commands = ProgramTest;

TEST_F(Commands, ThreadsChangeNoBitOfARun) {
  for (const char* threads : {"1", "2", "3", "5"}) {
    ASSERT_EQ(run(train({"--max_steps", "3", "--gradient_accumulation_steps", "2", "--threads",
                         threads, "--hash_file", threads}))
                  .status,
              0);
    ProgramResult result = run({"diff", "1", threads});
    EXPECT_EQ(result.status, 0) << result.out;
    EXPECT_TRUE(std::regex_match(result.out, std::regex("equal: [0-9]{3,} results\n")))
        << result.out;
  }
}

TEST_F(Commands, DiffNamesTheFirstOpThatDiffers) {
  run(train({"--max_steps", "2", "--hash_file", "a"}));
  run(train({"--max_steps", "2", "--hash_file", "b", "--seed", "5"}));
  ProgramResult seed = run({"diff", "a", "b"});
  EXPECT_EQ(seed.status, 1);
  EXPECT_EQ(seed.out,
            "first difference: step 0, op 0: embedding in embed (forward), output 0 (0 results "
            "before it are equal)\n");

  run(train({"--max_steps", "2", "--hash_file", "c", "--grad_clip", "0.5"}));
  ProgramResult clip = run({"diff", "a", "c"});
  EXPECT_EQ(clip.status, 1);
  expect_contains(clip.out, "(optimizer)");
  expect_contains(clip.out, "step 0, ");

  run(train({"--max_steps", "1", "--hash_file", "short"}));
  ProgramResult shorter = run({"diff", "a", "short"});
  EXPECT_EQ(shorter.status, 1);
  expect_contains(shorter.out, "short ends after ");
  expect_contains(shorter.out, "step 1, op 0");

  run(train({"--max_steps", "2", "--hash_file", "lion", "--optimizer", "lion"}));
  ProgramResult other = run({"diff", "a", "lion"});
  expect_contains(other.out, "the programs differ after ");
  expect_contains(other.out, "adamw");
}

TEST_F(Commands, EveryFamilyIsPlannedTrainedAndContinued) {
  for (const char* family : {"gpt2", "gpt_neox", "mistral", "qwen2", "qwen3"}) {
    SCOPED_TRACE(family);
    Words shape{"--model_type", family, "--num_key_value_heads", "4", "--rotary_pct", "0.5"};
    ProgramResult planned = run(Words{"plan"} + tiny_shape() + shape);
    EXPECT_EQ(planned.status, 0) << planned.err;
    std::smatch bytes;
    ASSERT_TRUE(
        std::regex_search(planned.out, bytes, std::regex(R"(total +(\S+ \S+) +\d+ bytes)")));
    ProgramResult trained = run(train(
        shape + Words{"--max_steps", "3", "--val_batch_size", "4", "--checkpoint_dir", family}));
    EXPECT_EQ(trained.status, 0) << trained.err;
    expect_contains(trained.err, "planned = allocated = " + bytes[1].str() + " ");
    ProgramResult continued =
        run({"generate", family, "--prompt", "the", "--max_new_tokens", "20"});
    EXPECT_EQ(continued.status, 0) << continued.err;
    for (const char* what : {"step", "ops"}) {
      ProgramResult timed = run(Words{"bench", what, "--repeats", "1"} + tiny_shape() + shape);
      EXPECT_EQ(timed.status, 0) << timed.err;
    }
  }
}

TEST_F(Commands, PlanOfThePublishedModels) {
  struct Preset {
    const char *name, *parameters;
  };
  for (Preset p : {Preset{"llama2_7b", "6738415616"},
                   {"llama2_13b", "13015864320"},
                   {"llama2_70b", "68976648192"}}) {
    ProgramResult result = run({"plan", "--model_name", p.name, "--train_batch_size", "1"});
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.out, cat(p.parameters, " parameters"));
    for (const char* what : {"moments", "gradients", "arena", "Live at the peak", "FLOP a step"})
      expect_contains(result.out, what);
    // The preset's context is 4096: the report says which window it took instead.
    expect_contains(result.out, "Step: 1 x 1 windows of 2048 tokens");
    expect_contains(result.err, "windows of 2048 tokens, the default of --max_context_width");
  }
  EXPECT_TRUE(names("cache").empty());
}

TEST_F(Commands, PlanRefusesSizesBeyondAllMachines) {
  for (const char* option :
       {"train_batch_size", "gradient_accumulation_steps", "world", "tensor_parallel_degree",
        "shard_degree", "ranks_per_host", "epochs"}) {
    ProgramResult result =
        run({"plan", "--model_name", "gpt2", cat("--", option), "1000000000000000"});
    EXPECT_EQ(result.status, 2) << option;
    expect_contains(result.message(), cat("--", option, " expects a value of at least"));
    expect_contains(result.message(), "at most 1048576");
  }
  // Each in its range, and not their product.
  ProgramResult result = run({"plan", "--model_type", "llama_v2", "--train_batch_size", "1048576",
                              "--max_context_width", "16777216"});
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "would take more than 64.0 TiB: lower the batch");
}

// A limit that the system enforces: without a look at it, memory would run out on the way.
TEST_F(Commands, TrainRefusesWhatItsProcessMayNotHold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "shadow memory takes more than any limit";
#endif
  auto limited = [] {
    rlimit limit{128 << 20, 128 << 20};
    ::setrlimit(RLIMIT_DATA, &limit);
  };
  ProgramResult result =
      run(train({"--hidden_width", "512", "--num_layers", "8", "--max_steps", "1"}), limited);
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "not enough memory: a rank needs ");
  expect_contains(result.message(), "(ulimit -d) has ");
  EXPECT_FALSE(exists("cache"));
  EXPECT_EQ(run(train({"--max_steps", "1"}), limited).status, 0);
}

TEST_F(Commands, OpensAsManyFilesAsTheHardLimitAllows) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += cat("{\"text\": \"", i, " files\"}\n");
  write("lines.jsonl", lines);
  const Words streamed = train(
      {"--streaming", "on", "--data_lanes", "96", "--dataset", "lines.jsonl", "--max_steps", "24"});
  for (rlim_t hard : {64, 256}) {
    if (hard == 64 && has_sanitizer()) continue;  // which takes descriptors to look at an exception
    auto limited = [hard] {
      const rlimit limit{64, hard};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    };
    const ProgramResult result = run(streamed, limited);
    EXPECT_EQ(result.status, hard == 64 ? 1 : 0) << result.err;
    if (hard == 64)
      expect_contains(result.message(),
                      "Too many open files: this process may have 64: that is the hard limit");
  }
}

TEST_F(Commands, OtherProgramsOfAJobHaveTheLimitOfOpenFilesThatTheUserHas) {
  auto limited = [] {
    const rlimit limit{300, 400};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  };
  const ProgramResult result =
      run({"run", "--standalone", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"}, limited);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.out, "300\n");
  expect_contains(result.out, "400\n");
}

TEST_F(Commands, PlanSaysWhatFits) {
  Words plan = Words{"plan"} + tiny_shape();
  ProgramResult small = run(plan + Words{"--memory", "100KB"});
  EXPECT_EQ(small.status, 1);
  expect_contains(small.out, "Does not fit: ");
  ProgramResult large = run(plan + Words{"--memory", "1GiB"});
  EXPECT_EQ(large.status, 0);
  expect_contains(large.out, "Fits in --memory 1.00 GiB: ");
  // The run allocates what the plan says.
  std::smatch bytes;
  ASSERT_TRUE(std::regex_search(large.out, bytes, std::regex(R"(total +(\S+ \S+) +\d+ bytes)")));
  ProgramResult trained = run(train({"--max_steps", "1", "--val_batch_size", "4"}));
  expect_contains(trained.err, "planned = allocated = " + bytes[1].str() + " ");
}

TEST_F(Commands, APrintedConfigurationIsTheSameRun) {
  Words job = train({"--max_steps", "3", "--bf16", "0"});
  ProgramResult printed = run(job + Words{"--print_config"});
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_FALSE(exists("cache"));
  write("run.toml", printed.out);
  EXPECT_EQ(run(job + Words{"--metrics_file", "straight"}).status, 0);
  ProgramResult again = run({"train", "--config", "run.toml", "--metrics_file", "again"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(losses("again").size(), 3u);
  EXPECT_EQ(losses("again"), losses("straight"));
  write("run.toml", "max_steps = 3\n[model]\nhiden_width = 32\n");
  ProgramResult wrong = run({"train", "--config", "run.toml"});
  EXPECT_EQ(wrong.status, 2);
  expect_contains(wrong.message(),
                  "run.toml:3:1: hiden_width: unknown option; did you mean hidden_width?");
}

TEST_F(Commands, PlanTakesWhatTrainingDoesNotYet) {
  ProgramResult result =
      run(Words{"plan"} + tiny_shape() + Words{"--device_type", "cuda", "--moe", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "--moe=True is not built yet");
  expect_lacks(result.err, "--device_type");
  // A family without a graph has parameters, but no arena that could be right.
  ProgramResult mixtral = run({"plan", "--model_name", "mixtral_8x7b", "--memory", "80GiB"});
  EXPECT_EQ(mixtral.status, 1);
  expect_contains(mixtral.out, "46702792704 parameters");
  expect_contains(mixtral.out, "this family is not built yet");
  expect_lacks(mixtral.out, "arena");
}

TEST_F(Commands, TokenizerTakesTheOptionsThatTheListSaysItHas) {
  const std::string help = run({"tokenizer", "--help"}).out;
  const std::string page = read_file(TESSERA_SOURCE_DIR "/docs/options.md");
  int listed = 0;
  for (std::string_view line : split(page, '\n')) {
    const size_t commands = line.rfind('(');
    if (!line.starts_with("| `--") || !line.ends_with(" works |") || commands == line.npos ||
        line.find("tokenizer", commands) == line.npos)
      continue;
    ++listed;
    EXPECT_NE(help.find(line.substr(3, line.find('`', 3) - 3)), std::string::npos) << line;
  }
  EXPECT_GT(listed, 4);
}

TEST_F(Commands, TokenizerThereAndBack) {
  ProgramResult trained = run(
      {"tokenizer", "train", "--input", "text.txt", "--vocab_size", "300", "--output", "t.json"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  for (const char* output : {"text.txt", "./text.txt"})
    EXPECT_EQ(run({"tokenizer", "train", "--input", "text.txt", "--output", output}).status, 2);
  write("notes", "not a tokenizer");
  expect_contains(run({"tokenizer", "train", "--input", "text.txt", "--output", "notes"}).message(),
                  "'notes' is there and no tokenizer, so it is not overwritten");
  std::string text = "the quick brown fox\n\xff caf\xc3\xa9 <|endoftext|> \xf0\x9f\x98\x80";
  write("input", text);
  for (const char* tokenizer : {"t.json", "byte"}) {
    ProgramResult encoded = run({"tokenizer", "encode", "--tokenizer", tokenizer, "input"});
    EXPECT_EQ(encoded.status, 0);
    write("ids", encoded.out);
    EXPECT_EQ(run({"tokenizer", "decode", "--tokenizer", tokenizer, "ids"}).out, text);
  }
  // The tokenizer is found again by generate, from the record of the run.
  ASSERT_EQ(run(train({"--tokenizer", "t.json", "--vocab_size", "300", "--max_steps", "1",
                       "--checkpoint_dir", "ckpt"}))
                .status,
            0);
  EXPECT_EQ(run({"generate", "ckpt", "--prompt", "the", "--max_new_tokens", "3"}).status, 0);
  // One with other ids is warned of, and not the same in another file.
  write("same.json", read_file(path("t.json")));
  const auto warns = [&](const Words& words, const char* tokenizer) {
    const ProgramResult result = run(words + Words{"--tokenizer", tokenizer});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err.find(cat("--tokenizer ", tokenizer, " is another one than that of ")) !=
           std::string::npos;
  };
  const Words generate{"generate", "ckpt", "--prompt", "the", "--max_new_tokens", "1"};
  EXPECT_TRUE(warns(generate, "byte"));
  EXPECT_FALSE(warns(generate, "same.json"));
  EXPECT_TRUE(warns({"export", "ckpt", "other"}, "byte"));
  EXPECT_FALSE(warns({"export", "ckpt", "same"}, "same.json"));
  run({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "290", "--output", "o.json"});
  const LocalServer server;
  server.write("files/tokenizer.json", read_file(path("o.json")));
  const std::string log =
      run(generate + Words{"--tokenizer", server.url("/files/tokenizer.json?sig=secret")}).err;
  expect_contains(log, " is another one than that of ");
  expect_lacks(log, "secret");
}

TEST_F(Commands, BenchMeasuresAStepAndItsOps) {
  ProgramResult step = run(Words{"bench", "step", "--by_op", "--repeats", "2"} + tiny_shape());
  EXPECT_EQ(step.status, 0) << step.err;
  for (const char* what :
       {"tokens/s", "of the matrix peak", "% light", "adamw", "optimizer", "backward"})
    expect_contains(step.out, what);
  ProgramResult ops = run(Words{"bench", "ops", "--repeats", "1"} + tiny_shape());
  EXPECT_EQ(ops.status, 0) << ops.err;
  for (const char* op :
       {"linear", "attention", "rms_norm", "swiglu", "rope", "linear_cross_entropy", "adamw"})
    expect_contains(ops.out, op);
  ProgramResult one = run(Words{"bench", "ops", "--repeats", "1", "--op", "swiglu"} + tiny_shape());
  expect_contains(one.out, "swiglu");
  expect_lacks(one.out, "rms_norm");
  for (const std::string op : {"sgd", "lion"}) {
    ProgramResult update =
        run(Words{"bench", "ops", "--repeats", "1", "--optimizer", op, "--op", op} + tiny_shape());
    EXPECT_EQ(update.status, 0) << update.err;
    expect_contains(update.out, op + " ");  // its kernel
    expect_lacks(update.out, "adamw");
  }
}

TEST_F(Commands, CommTestMeasuresCollectivesAndChecksThem) {
  ProgramResult comm = run({"comm-test", "-n", "2", "--ranks=3", "--maxbytes", "256K"});
  EXPECT_EQ(comm.status, 0) << comm.err;
  for (const char* what :
       {"# all_gather", "# reduce_scatter", "# all_reduce", "262144         65536",
        "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : "})
    expect_contains(comm.out, what);
  EXPECT_EQ(run({"comm-test", "--collective", "broadcast"}).status, 2);
  EXPECT_EQ(run({"comm-test", "--minbytes", "1M", "--maxbytes", "1K"}).status, 2);
  EXPECT_EQ(run({"comm-test", "--maxbytes", "64Q"}).status, 2);
  expect_contains(run({"comm-test", "--itres", "3"}).err, "did you mean --iters?");
}

TEST_F(Commands, DoctorLooksAtThisHost) {
  ProgramResult doctor = run({"doctor", "--directory", ".", "--file_bytes", "1M"});
  EXPECT_EQ(doctor.status, 0) << doctor.out;
  expect_contains(doctor.out, "GFLOP/s");
  expect_contains(doctor.out, "a rank writes");
  expect_contains(run({"doctor", "--json", "-"}).out, "\"usable_cores\": ");
  doctor = run({"doctor", "--directory", "missing"});
  EXPECT_EQ(doctor.status, 1);
  expect_contains(doctor.out, "cannot use 'missing'");
  doctor = run({"doctor", "--directory", "\xff", "--json", "-"});
  EXPECT_EQ(doctor.status, 1) << doctor.err;
  expect_contains(doctor.out, "\"path\": \"\xef\xbf\xbd\"");
}

TEST_F(Commands, LogLevelDecidesWhatIsSaid) {
  EXPECT_EQ(run(train({"--max_steps", "1", "--log_level", "warning"})).err, "");
  expect_contains(run(train({"--max_steps", "1"})).err, "Batch 0 Loss: ");
}

TEST_F(Commands, EveryInstructionSetOfTheMachineTrains) {
  std::string version = run({"version"}).out;
  Words sets{"portable", "avx2", "avx512", "avx512_bf16", "amx"};
  for (const std::string& isa : sets) {
    ProgramResult result = run(train({"--max_steps", "2", "--cpu_isa", isa}));
    EXPECT_EQ(result.status, 0) << result.err;
    expect_contains(result.err, ", " + isa);
    if (version.find("instruction set " + isa + "\n") != std::string::npos) break;
  }
}

TEST_F(Commands, ADumpMayBeOfPages) {
  const Words job = Words{"plan"} + tiny_shape() + Words{"--dump_pass", "pages"};
  ASSERT_EQ(run(job + Words{"--dump_format", "html"}).status, 0);
  const std::set<std::string> files = names("pages");
  EXPECT_TRUE(files.contains("accumulate_first.00_built.html")) << join(files, " ");
  EXPECT_TRUE(std::ranges::all_of(files, [](auto& f) { return f.ends_with(".html"); }));
  ProgramResult wrong = run(job + Words{"--dump_format", "pdf"});
  EXPECT_EQ(wrong.status, 2);
  expect_contains(wrong.message(), "--dump_format");
}

TEST_F(Commands, ADumpHoldsTheGraphAfterEveryPass) {
  ASSERT_EQ(run(train({"--max_steps", "1", "--dump_pass", "dumps"})).status, 0);
  std::set<std::string> files = names("dumps");
  for (const char* file : {"accumulate_first.00_built.txt", "apply", "evaluate"}) {
    EXPECT_TRUE(std::ranges::any_of(files, [&](const std::string& f) {
      return f.starts_with(file);
    })) << file;
  }
}

}  // namespace
}  // namespace tessera
