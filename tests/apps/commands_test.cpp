// The commands as a user meets them, on a tiny model.
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/program_fixture.h"

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

TEST_F(Commands, GenerateContinuesAText) {
  ASSERT_EQ(run(train({"--max_steps", "60", "--lr_decay_iters", "60", "--checkpoint_dir", "ckpt"}))
                .status,
            0);
  auto generate = [&](const Words& more) {
    ProgramResult result =
        run(Words{"generate", "ckpt", "--prompt", "the quick", "--max_new_tokens", "40"} + more);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.find("the quick"), 0u);
    EXPECT_EQ(result.out.back(), '\n');
    return result.out;
  };
  std::string sampled = generate({});
  EXPECT_EQ(sampled, generate({}));
  EXPECT_EQ(sampled, generate({"--threads", "1"}));
  EXPECT_NE(sampled, generate({"--seed", "8"}));
  std::string likeliest = generate({"--temperature", "0"});
  EXPECT_EQ(likeliest, generate({"--temperature", "0", "--seed", "8"}));
  EXPECT_EQ(likeliest, generate({"--top_k", "1"}));
  EXPECT_EQ(
      run({"generate", "ckpt/llama_v2-60steps", "--prompt", "a", "--max_new_tokens", "0"}).out,
      "a\n");
  EXPECT_EQ(likeliest, generate({"--top_p", "0"}));
  EXPECT_NE(sampled, generate({"--top_p", "0.5", "--temperature", "1.5"}));
  expect_contains(run({"generate", "ckpt", "--prompt", "a", "--max_new_tokens", "3"}).err,
                  "Prompt: 2 tokens in ");

  // The text ends before the first of the stop texts; the prompt may come from a file.
  size_t end = std::string("the quick").size();
  while (!std::isalpha(likeliest.at(end)) || !std::isalpha(likeliest.at(end + 1))) ++end;
  std::string stop = likeliest.substr(end, 2);
  EXPECT_EQ(generate({"--temperature", "0", "--stop", "never", stop}),
            likeliest.substr(0, end) + "\n");
  EXPECT_EQ(generate({"--temperature", "0", "--stop", "\\\\"}), likeliest);
  write("prompt.txt", "the quick");
  EXPECT_EQ(run({"generate", "ckpt", "--prompt_file", "prompt.txt", "--temperature", "0",
                 "--max_new_tokens", "40"})
                .out,
            likeliest);
  ProgramResult from_input = run(
      {"generate", "ckpt", "--prompt_file", "-", "--temperature", "0", "--max_new_tokens", "40"},
      [] { ::dup2(::open("prompt.txt", O_RDONLY), 0); });
  EXPECT_EQ(from_input.out, likeliest) << from_input.err;
  ProgramResult both = run({"generate", "ckpt", "--prompt", "a", "--prompt_file", "prompt.txt"});
  EXPECT_EQ(both.status, 2);
  expect_contains(both.message(), "--prompt and --prompt_file are two sources");

  // The same from a Hugging Face directory, where only what its tokenizer says begins a text.
  ASSERT_EQ(run({"export", "ckpt", "model"}).status, 0);
  EXPECT_EQ(run({"generate", "model", "--prompt", "<|endoftext|>the quick", "--temperature", "0",
                 "--max_new_tokens", "40"})
                .out,
            "<|endoftext|>" + likeliest);

  // A prompt longer than the context keeps its end.
  expect_contains(
      run({"generate", "ckpt", "--prompt", std::string(50, 'x'), "--max_new_tokens", "2"}).out,
      std::string(50, 'x'));

  ASSERT_EQ(run({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "280", "--output",
                 "large.json"})
                .status,
            0);
  ProgramResult misfit = run({"generate", "ckpt", "--tokenizer", "large.json"});
  EXPECT_EQ(misfit.status, 1);
  expect_contains(misfit.message(), "the tokenizer has 280 ids, the model's vocabulary only 257");
}

// Context, ends of a text and begin of a prompt are those of the model that it was made of.
TEST_F(Commands, GenerateContinuesATunedModelAsItsExport) {
  auto ok = [&](const Words& words) {
    ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  ok(train({"--max_steps", "60", "--lr_decay_iters", "60", "--max_context_width", "64",
            "--checkpoint_dir", "ckpt"}));
  ok({"export", "ckpt", "model"});
  write("model/generation_config.json", R"({"eos_token_id": [256, 32]})");
  const std::string prompt = "the quick brown fox jumps over the lazy d";  // more than 16 tokens
  auto likeliest = [&](const std::string& model, const std::string& text) {
    return ok({"generate", model, "--prompt", text, "--temperature", "0", "--max_new_tokens", "20",
               "--bf16", "0"});
  };
  std::string rows;
  for (int i = 0; i < 100; ++i) rows += "{\"text\": \"the quick\"}\n";
  write("rows.jsonl", rows);
  for (const std::string packing : {"rows", "auto"}) {
    ok({"train", "--hf_model", "model", "--dataset", "rows.jsonl", "--max_context_width", "16",
        "--max_steps", "1", "--threads", "1", "--packing", packing, "--checkpoint_dir", packing});
    ok({"export", packing, packing + "-model"});
    const std::string end = packing == "rows" ? "" : "<|endoftext|>";
    const std::string text = likeliest(packing + "-model", end + prompt);
    EXPECT_EQ(end + likeliest(packing, prompt), text);
    EXPECT_EQ(text.find(' ', end.size() + prompt.size()), std::string::npos) << text;
  }
}

TEST_F(Commands, GenerateContinuesAFileOfPrompts) {
  ASSERT_EQ(run(train({"--max_steps", "60", "--lr_decay_iters", "60", "--checkpoint_dir", "ckpt"}))
                .status,
            0);
  const Words prompts{"the quick", "birds sing of spring and", "x", "lazy dogs", "the quick"};
  std::string lines, objects;
  for (const std::string& prompt : prompts) {
    lines += prompt + "\n\n";
    objects += nlohmann::json{{"prompt", prompt}, {"id", 3}}.dump() + "\r\n";
  }
  write("prompts.txt", lines);
  write("prompts.jsonl", objects);
  auto completions = [&](const Words& more) {
    ProgramResult result = run(Words{"generate", "ckpt", "--max_new_tokens", "40"} + more);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<nlohmann::json> found;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  };
  // In order, and each what it is alone: with the likeliest tokens the text of --prompt.
  auto likeliest = completions({"--prompts_file", "prompts.txt", "--temperature", "0"});
  ASSERT_EQ(likeliest.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(likeliest[i]["prompt"], prompts[i]);
    EXPECT_EQ(run({"generate", "ckpt", "--prompt", prompts[i], "--temperature", "0",
                   "--max_new_tokens", "40"})
                  .out,
              prompts[i] + likeliest[i]["completion"].get<std::string>() + "\n");
    EXPECT_LE(likeliest[i]["tokens"], 40);
    EXPECT_TRUE(likeliest[i]["finish_reason"] == "length"
                    ? likeliest[i]["tokens"] == 40
                    : likeliest[i]["finish_reason"] == "stop");
  }
  auto sampled = completions({"--prompts_file", "prompts.jsonl"});
  for (const char* size : {"1", "2", "100"}) {
    EXPECT_EQ(completions({"--prompts_file", "prompts.txt", "--prompt_batch_size", size}), sampled);
  }
  EXPECT_NE(sampled[0]["completion"], sampled[4]["completion"]);
  EXPECT_EQ(run({"generate", "ckpt", "--prompt", prompts[0], "--max_new_tokens", "40"}).out,
            prompts[0] + sampled[0]["completion"].get<std::string>() + "\n");
  ProgramResult piped = run({"generate", "ckpt", "--max_new_tokens", "4", "--prompts_file", "-"},
                            [] { ::dup2(::open("prompts.jsonl", O_RDONLY), 0); });
  EXPECT_EQ(piped.status, 0) << piped.err;
  expect_contains(piped.err, "5 prompts, 5 at once: ");
  expect_contains(piped.out, R"({"prompt":"the quick","completion":")");
  for (const auto& each : completions({"--prompts_file", "prompts.txt", "--stop", "e", "t"}))
    EXPECT_EQ(each["completion"].get<std::string>().find_first_of("et"), std::string::npos);

  write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n");
  ProgramResult bad = run({"generate", "ckpt", "--prompts_file", "bad.jsonl"});
  EXPECT_EQ(bad.status, 1);
  expect_contains(bad.message(), "'bad.jsonl', line 2: \"prompt\" is not a string");
  EXPECT_EQ(bad.out, "");
  write("empty.txt", "\n");
  expect_contains(run({"generate", "ckpt", "--prompts_file", "empty.txt"}).message(),
                  "'empty.txt' holds no prompt");
  expect_contains(run({"generate", "ckpt", "--prompts_file", "none.txt"}).message(),
                  "cannot read 'none.txt'");
  ProgramResult both = run({"generate", "ckpt", "--prompt", "a", "--prompts_file", "prompts.txt"});
  EXPECT_EQ(both.status, 2);
  expect_contains(both.message(), "--prompt and --prompts_file are two sources");
  ProgramResult alone = run({"generate", "ckpt", "--prompt", "a", "--prompt_batch_size", "2"});
  EXPECT_EQ(alone.status, 2);
  expect_contains(alone.message(), "--prompt_batch_size counts texts of --prompts_file");

  // --memory makes the batch smaller, and refuses what does not fit at all.
  auto limited = [&](const std::string& memory) {
    return run({"generate", "ckpt", "--prompts_file", "prompts.txt", "--max_new_tokens", "9",
                "--memory", memory});
  };
  expect_contains(limited("1GiB").err, "5 prompts, 5 at once: ");
  // What one row needs: whole MiB, then the KiB beyond them.
  std::smatch found;
  std::string refusal = limited("1KiB").message();
  ASSERT_TRUE(std::regex_search(refusal, found, std::regex(R"(needs (\d+)\S* MiB, )"))) << refusal;
  const int mib = std::stoi(found[1]);
  const ProgramResult none = limited(cat(mib, "MiB"));
  EXPECT_EQ(none.status, 1);
  refusal = none.message();
  ASSERT_TRUE(std::regex_search(refusal, found, std::regex(R"(is (\d+)\S* KiB more than)")))
      << refusal;
  const int kib = 1024 * mib + std::stoi(found[1]) + 1;
  expect_contains(limited(cat(kib, "KiB")).err, "5 prompts, 1 at once: ");

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A batch that memory does not hold is refused where it was asked for.
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "the quick\n";
  write("many.txt", many);
  auto little = [] {
    rlimit limit{128 << 20, 128 << 20};
    ::setrlimit(RLIMIT_DATA, &limit);
  };
  ProgramResult large = run({"generate", "ckpt", "--prompts_file", "many.txt", "--max_new_tokens",
                             "1", "--prompt_batch_size", "1000000"},
                            little);
  EXPECT_EQ(large.status, 1);
  expect_contains(large.message(), "a smaller --prompt_batch_size or fewer --max_new_tokens");
#endif
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
    EXPECT_LT(result.seconds, 30) << p.name;  // 1 to 2 s on an idle machine
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
