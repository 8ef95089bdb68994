#include <cmath>
#include <limits>

#include "options/checkpoint_tiers.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

TEST(OptionParser, BothFormsAndHyphens) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"--max_steps=7"},
                                                                     {"--max_steps", "7"},
                                                                     {"--max-steps=7"},
                                                                     {"--max-training_steps", "7"},
                                                                     {"--num-steps", "+7"},
                                                                     {"--max_steps='7'"},
                                                                     {"--max_steps", "7.0"}}) {
    ParsedOptions parsed = parse(arguments);
    EXPECT_EQ(parsed.config.max_steps, 7) << arguments[0];
    EXPECT_TRUE(parsed.is_given("max_steps"));
    EXPECT_EQ(parsed.given.size(), 1u);
    EXPECT_TRUE(parsed.warnings.empty());
  }
  EXPECT_EQ(parse({}).config, RunConfig{});
}

TEST(OptionParser, Numbers) {
  EXPECT_EQ(parse({"--max_steps=2e6"}).config.max_steps, 2000000);
  EXPECT_EQ(parse({"--lr", "1e-5"}).config.lr, 1e-5);
  EXPECT_EQ(parse({"--seed=9223372036854775807"}).config.seed, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse({"--grad_clip", "-1"}).config.grad_clip, -1.0);
  EXPECT_EQ(parse({"--grad_clip", "None"}).config.grad_clip, 0.0);
  EXPECT_TRUE(std::isinf(parse({"--grad_clip", "inf"}).config.grad_clip));
  EXPECT_EQ(parse({"--lr_decay_iters=47683"}).config.lr_decay_iters, 47683);
  EXPECT_EQ(parse({"--lr_decay_iters=5", "--lr_decay_iters=None"}).config.lr_decay_iters,
            std::nullopt);
  EXPECT_EQ(parse({"--max_dataset_len", "inf"}).config.max_dataset_len, std::nullopt);
  expect_contains(usage_error({"--max_steps=many"}),
                  "--max_steps expects an integer: it is 'many'");
  expect_contains(usage_error({"--max_steps=7x"}), "expects an integer");
  expect_contains(usage_error({"--max_steps=1.5"}), "expects an integer");
  expect_contains(usage_error({"--max_steps=99999999999999999999"}), "expects an integer");
  expect_contains(usage_error({"--max_steps=None"}), "expects an integer");
  expect_contains(usage_error({"--max_steps="}), "expects an integer");
  expect_contains(usage_error({"--max_steps=-1"}), "a value of at least 0");
  expect_contains(usage_error({"--lr=inf"}), "a finite number");
  expect_contains(usage_error({"--lr=nan"}), "expects a number");
  expect_contains(usage_error({"--beta1=1"}), "at least 0 and below 1");
  expect_contains(usage_error({"--warmup=1.01"}), "at least 0 and at most 1");
  expect_contains(usage_error({"--max_steps"}), "--max_steps needs a value (int)");
  expect_contains(usage_error({"--max_steps", "--epochs=1"}), "--max_steps needs a value");
  expect_contains(usage_error({"--lr=" + std::string(500, '9') + "x"}), "...'");
}

TEST(OptionParser, BytesAndLayerChoices) {
  EXPECT_EQ(parse({"--memory=80GiB"}).config.memory, int64_t{80} << 30);
  EXPECT_EQ(parse({"--memory", "1.5g"}).config.memory, int64_t{3} << 29);
  EXPECT_EQ(parse({"--memory=512 MB"}).config.memory, 512000000);
  EXPECT_EQ(parse({"--memory=8e9"}).config.memory, 8000000000);
  EXPECT_EQ(parse({"--memory=12b"}).config.memory, 12);
  EXPECT_EQ(parse({"--memory=None"}).config.memory, std::nullopt);
  for (const char* bad : {"lots", "1x", "1gig", "", "-1", "0", "1e30", "9999999999tb", "."}) {
    usage_error({cat("--memory=", bad)});
  }
  for (const char* good : {"0", "1", "4", "1/3", "0.25", "3/3"}) {
    EXPECT_EQ(parse({cat("--selective_checkpointing=", good)}).config.selective_checkpointing,
              good);
  }
  for (const char* bad : {"1.5", "4/3", "0/3", "x", "", "-1", "1/"}) {
    expect_contains(usage_error({cat("--selective_checkpointing=", bad)}),
                    "a fraction below 1, or p/q");
  }
  for (auto [text, share] : {std::pair{"0", 1.0},
                             {"1", 1.0},
                             {"4", 0.25},
                             {"0.25", 0.25},
                             {"3/4", 0.75},
                             {"3/3", 1.0}}) {
    auto parsed = parse_layer_share(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->numerator / parsed->denominator, share) << text;
  }
}

TEST(OptionParser, Booleans) {
  for (const char* on : {"True", "true", "TRUE", "1", "2"}) {
    EXPECT_TRUE(parse({cat("--decay_all=", on)}).config.decay_all) << on;
    EXPECT_TRUE(parse({"--decay-all", on}).config.decay_all) << on;
  }
  for (const char* off : {"False", "FALSE", "false", "0", "-1"}) {
    EXPECT_FALSE(parse({cat("--bf16=", off)}).config.bf16) << off;
    EXPECT_FALSE(parse({"--mixed_precision", off}).config.bf16) << off;
  }
  EXPECT_TRUE(parse({"--decay_all"}).config.decay_all);
  ParsedOptions bare = parse({"--decay_all", "--max_steps", "3"});
  EXPECT_TRUE(bare.config.decay_all);
  EXPECT_EQ(bare.config.max_steps, 3);
  expect_contains(usage_error({"--decay_all=yes"}),
                  "--decay_all expects True, False, 1 or 0: it is 'yes'");
  expect_contains(usage_error({"--decay_all", "ture"}),
                  "stray word 'ture': as a value of --decay_all, True, False, 1 or 0 is expected");
}

TEST(OptionParser, Enumerations) {
  EXPECT_EQ(parse({"--sharding_strategy=FULL_SHARD"}).config.sharding_strategy, "full_shard");
  EXPECT_EQ(parse({"--sharding_strategy=hsdp"}).config.sharding_strategy, "hybrid_shard");
  EXPECT_EQ(parse({"--sharding_strategy=_hybrid_shard_zero2"}).config.sharding_strategy,
            "_hybrid_shard_zero2");
  EXPECT_EQ(parse({"--sharding_strategy=DDP"}).config.sharding_strategy, "no_shard");
  EXPECT_EQ(parse({"--checkpoint_type=use_pg_with_util"}).config.checkpoint_type, "sharded");
  ParsedOptions smddp = parse({"--distributed_backend=smddp"});
  EXPECT_EQ(smddp.config.distributed_backend, "nccl");
  EXPECT_EQ(smddp.warnings, std::vector<std::string>{"--distributed_backend smddp is not built: "
                                                     "nccl is used in its place"});
  EXPECT_TRUE(parse({"--distributed_backend=nccl"}).warnings.empty());
  std::string error = usage_error({"--lr_decay_style=cosin"});
  expect_contains(error, "constant, linear, cosine, exponential, plateau, fms, step");
  expect_contains(error, "did you mean cosine?");
  expect_contains(usage_error({"--data_type=bert"}), "expects one of gpt: it is 'bert'");
  expect_contains(usage_error({"--model_type=llama"}),
                  "gpt_neox, llama_v2, llama_v3, mistral, mixtral, gpt2");
}

TEST(OptionParser, TextListsAndOptionalValues) {
  EXPECT_EQ(parse({"--dataset", "/a dir/x"}).config.dataset, "/a dir/x");
  EXPECT_EQ(parse({"--dataset=\"c4\""}).config.dataset, "c4");
  EXPECT_EQ(parse({"--checkpoint_dir=a=b"}).config.checkpoint_dir, std::vector<std::string>{"a=b"});
  EXPECT_TRUE(parse({"--checkpoint_dir", "None"}).config.checkpoint_dir.empty());
  EXPECT_EQ(parse({"--prompt= Once upon "}, OptionScope::kGenerate).config.prompt, " Once upon ");
  EXPECT_EQ(parse({"--tensorboard_dir", "a", "b", "--bf16"}).config.tensorboard_dir,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse({"--prompt=# Title"}, OptionScope::kGenerate).config.prompt, "# Title");
  expect_contains(usage_error({"--prompt", "# Title"}, OptionScope::kGenerate), "--prompt=VALUE");
  EXPECT_TRUE(parse({"--log_dir=None"}).config.tensorboard_dir.empty());
  EXPECT_EQ(parse({"--shard_degree", "--bf16"}).config.shard_degree, std::nullopt);
  EXPECT_TRUE(parse({"--shard_degree"}).is_given("shard_degree"));
  EXPECT_EQ(parse({"--shard_degree=64"}).config.shard_degree, 64);
}

TEST(OptionParser, PatternsAreSeparatedByCommasOrBlanks) {
  const std::vector<std::string> both{"a.*", "b"};
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--freeze=a.*,b"},
                                             {"--freeze", "a.*", "b"},
                                             {"--freeze", "a.* , b"},
                                             {"--freeze", "'a.*,b'"}})
    EXPECT_EQ(parse(words).config.freeze, both);
  EXPECT_EQ(parse({"--freeze", "x.[0,2].*,[!ab]", "y"}).config.freeze,
            (std::vector<std::string>{"x.[0,2].*", "[!ab]", "y"}));
  EXPECT_TRUE(parse({"--freeze=None"}).config.freeze.empty());
  EXPECT_EQ(parse_files({"freeze = ['a.*', 'b']"}).config.freeze, both);
  EXPECT_EQ(parse_files({"freeze = 'a.*,b'"}).config.freeze, both);
}

TEST(OptionParser, CheckpointListsAreTiersAndMustAgree) {
  ParsedOptions parsed = parse({"--checkpoint_dir", "a", "b", "c", "--checkpoint_freq", "10",
                                "1.5h", "1e3,90s", "--num_kept_checkpoints", "2", "None", "5"});
  EXPECT_TRUE(parsed.warnings.empty());
  std::vector<CheckpointTier> tiers = checkpoint_tiers(parsed.config);
  ASSERT_EQ(tiers.size(), 3u);
  EXPECT_EQ(tiers[0].directory, "a");
  EXPECT_EQ(tiers[0].interval.steps, 10);
  EXPECT_EQ(tiers[0].interval.seconds, 0);
  EXPECT_EQ(tiers[0].num_kept, 2);
  EXPECT_EQ(tiers[1].interval.steps, 0);
  EXPECT_EQ(tiers[1].interval.seconds, 5400);
  EXPECT_EQ(tiers[1].num_kept, 0);
  EXPECT_EQ(tiers[2].interval.steps, 1000);
  EXPECT_EQ(tiers[2].interval.seconds, 90);
  EXPECT_EQ(tiers[2].num_kept, 5);
  // What is not given is the default for each.
  tiers = checkpoint_tiers(
      parse({"--checkpoint_dir", "a", "b", "--checkpoint_freq", "1", "2d"}).config);
  EXPECT_EQ(tiers.at(1).interval.seconds, 172800);
  EXPECT_EQ(tiers.at(1).num_kept, 0);
  EXPECT_EQ(checkpoint_tiers(parse({"--checkpoint_dir", "a", "b"}).config).at(1).interval.steps,
            1000);
  EXPECT_TRUE(checkpoint_tiers(RunConfig()).empty());

  expect_contains(
      usage_error({"--checkpoint_dir", "a", "b", "--checkpoint_freq", "10", "50",
                   "--num_kept_checkpoints", "3"}),
      "--checkpoint_dir has 2, --checkpoint_freq has 2, --num_kept_checkpoints has 1; give one");
  expect_contains(usage_error({"--checkpoint_freq", "10", "20"}), "must have equal lengths");
  expect_contains(usage_error({"--checkpoint_dir", "a", "a"}), "names 'a' twice");
  for (const char* same : {"a/", "./a", "b/../a/"})
    expect_contains(usage_error({"--checkpoint_dir", "a", same}),
                    cat("names 'a' twice, the second time as '", same, "'"));
  expect_contains(usage_error({"--checkpoint_dir", "s3://bucket/a", "s3://bucket/a/"}),
                  "names 's3://bucket/a' twice");
  for (const char* bad : {"x", "0", "-1", "0s", "1.5", "10x", "5m,6m", "5,6", "5,", "m", "1e9d"})
    expect_contains(
        usage_error({"--checkpoint_freq", "10", bad}),
        cat("expects a number of steps, a time (600s, 10m, 2h), or both (1000,10m): it is '", bad,
            "'"));
  expect_contains(usage_error({"--num_kept_checkpoints", "1", "x"}),
                  "expects an integer or None: it is 'x'");
  expect_contains(usage_error({"--num_kept_checkpoints", "0"}), "a value of at least 1: it is '0'");
}

TEST(OptionParser, APlaceInABucketHasABucket) {
  for (const char* option : {"--checkpoint_dir", "--resume_from_checkpoint"}) {
    for (const char* bad : {"s3://", "s3:///ckpt"})
      expect_contains(usage_error({option, bad}), cat(option, ": '", bad, "' is not a name in S3"));
    parse({option, "s3://bucket"});
    parse({option, "s3://bucket/ckpt"});
  }
}

TEST(OptionParser, Bundles) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--betas", "0.8", "0.99"}, {"--betas=0.8,0.99"}, {"--betas", "(0.8, 0.99)"}}) {
    EXPECT_EQ(parse(arguments).config.beta1, 0.8);
    EXPECT_EQ(parse(arguments).config.beta2, 0.99);
  }
  ParsedOptions dropout = parse({"--dropout=0.3"});
  EXPECT_EQ(dropout.config.resid_pdrop, 0.3);
  EXPECT_EQ(dropout.config.embd_pdrop, 0.3);
  EXPECT_EQ(dropout.config.attn_pdrop, 0.3);
  expect_contains(usage_error({"--betas", "0.8"}), "--betas expects 2 values: it has 1");
  expect_contains(usage_error({"--betas", "0.8", "2"}),
                  "--betas expects a value of at least 0 and below 1");
  expect_contains(usage_error({"--dropout"}), "--dropout expects 1 value: it has 0");
  expect_contains(usage_error({"--dropout=0.1"}, OptionScope::kGenerate),
                  "not an option of tessera generate");
}

TEST(OptionParser, TheLastValueWinsAcrossAliasesWithOneWarning) {
  ParsedOptions parsed = parse({"--max_steps=5", "--num_steps=6", "--max_training_steps", "7"});
  EXPECT_EQ(parsed.config.max_steps, 7);
  ASSERT_EQ(parsed.warnings.size(), 1u);
  EXPECT_EQ(
      parsed.warnings[0],
      "--max_steps is given more than once: --max_steps 5, --num_steps 6, --max_training_steps "
      "7; the last one wins");
  EXPECT_TRUE(parse({"--lr=1e-4", "--learning_rate=0.0001"}).warnings.empty());
}

TEST(OptionParser, UnknownOptionsNameTheNearest) {
  EXPECT_EQ(usage_error({"--max_step=5"}), "unknown option --max_step; did you mean --max_steps?");
  EXPECT_EQ(usage_error({"--trian-batch-size=5"}),
            "unknown option --trian-batch-size; did you mean --train_batch_size?");
  EXPECT_EQ(usage_error({"--frobnicate"}), "unknown option --frobnicate; see tessera plan --help");
  expect_contains(usage_error({"--max"}), "unknown option --max");  // no abbreviations
  expect_contains(usage_error({"--" + std::string(100000, 'x')}), "unknown option");
  EXPECT_EQ(usage_error({"--prompt=x"}, OptionScope::kTrain),
            "--prompt is not an option of tessera train but of tessera generate");
  EXPECT_EQ(usage_error({"--promt=x"}, OptionScope::kGenerate),
            "unknown option --promt; did you mean --prompt?");
}

TEST(OptionParser, StrayWords) {
  constexpr const char* kBackslash = "a backslash that continues a line must be its last character";
  expect_contains(usage_error({"--max_steps=5", " #"}), kBackslash);
  expect_contains(usage_error({"--max_steps=5", " ", "--epochs=1"}), kBackslash);
  expect_contains(usage_error({"--max_steps", "5", "# comment"}), kBackslash);
  expect_contains(usage_error({"--tensorboard_dir", "a", " "}), kBackslash);
  EXPECT_EQ(usage_error({"--bf16", ""}),
            "stray word '': an empty word was given: a variable that is not set?");
  expect_contains(usage_error({"ckpt", ""}, OptionScope::kExport), "an empty word was given");
  expect_contains(usage_error({"ckpt", "--bf16", "maybe"}, OptionScope::kGenerate),
                  "stray word 'maybe': as a value of --bf16, True, False, 1 or 0 is expected");
  EXPECT_EQ(parse({"--bf16", "ckpt"}, OptionScope::kGenerate).words,
            std::vector{std::string("ckpt")});
  EXPECT_EQ(usage_error({"--max_steps 100"}),
            "'--max_steps 100' holds an option, a blank and a value in one string: write "
            "'--max_steps=100', or two strings");
  expect_contains(usage_error({"max_steps=5"}),
                  "stray word 'max_steps=5': did you mean --max_steps=5?");
  expect_contains(usage_error({"word"}), "options start with --");
  expect_contains(usage_error({"--bf16", "--max_steps=5", "word"}), "options start with --");
  expect_contains(usage_error({"-x"}), "options start with --");
  expect_contains(usage_error({"--"}), "stray word");
}

TEST(OptionParser, WordsBelongToSomeCommands) {
  EXPECT_EQ(parse({"a", "b", "--log_level=debug"}, OptionScope::kDiff).words,
            (std::vector<std::string>{"a", "b"}));
  ParsedOptions bench = parse({"step", "--by_op", "--model_type=llama_v2"}, OptionScope::kBench);
  EXPECT_EQ(bench.words, std::vector<std::string>{"step"});
  EXPECT_TRUE(bench.config.by_op);
  EXPECT_EQ(parse({"--by_op", "step"}, OptionScope::kBench).words,
            std::vector<std::string>{"step"});
}

TEST(OptionParser, HelpStopsEverything) {
  EXPECT_TRUE(parse({"--help", "--nonsense"}).help);
  EXPECT_TRUE(parse({"--max_steps=5", "-h"}).help);
  EXPECT_EQ(parse({"--help"}).help_word, "");
  EXPECT_EQ(parse({"--help", "shard", "--nonsense"}).help_word, "shard");
  EXPECT_EQ(parse({"--help=shard"}).help_word, "shard");
  EXPECT_EQ(parse({"--device_type=gpu"}).config.device_type, "cuda");
  EXPECT_FALSE(parse({}).help);
}

TEST(OptionParser, Environment) {
  auto lookup = [](const char* name) -> std::optional<std::string> {
    if (std::string(name) == "SM_CHANNEL_TRAIN") return "/channel";
    if (std::string(name) == "XLA_CACHE_DIR") return "";
    return std::nullopt;
  };
  ParsedOptions parsed = parse_options({}, OptionScope::kPlan, lookup);
  EXPECT_EQ(parsed.config.training_dir, "/channel");
  EXPECT_TRUE(parsed.is_given("training_dir"));
  EXPECT_FALSE(parsed.is_given("cache_dir"));
  EXPECT_TRUE(any_contains(parsed.notes, "SM_CHANNEL_TRAIN"));
  std::vector<std::string> arguments{"--training_dir=/mine"};
  EXPECT_EQ(parse_options(arguments, OptionScope::kPlan, lookup).config.training_dir, "/mine");
  arguments = {"--dataset=own.txt"};
  const ParsedOptions own = parse_options(arguments, OptionScope::kPlan, lookup);
  EXPECT_EQ(own.config.training_dir, "");
  EXPECT_TRUE(any_contains(own.notes, "SM_CHANNEL_TRAIN is left alone: --dataset is given"));
  arguments.push_back("--training_dir=/mine");
  EXPECT_TRUE(any_contains(parse_options(arguments, OptionScope::kPlan, lookup).warnings,
                           "--dataset is not read: --training_dir is given in its place"));
  EXPECT_FALSE(parse_options({}, OptionScope::kDiff, lookup).is_given("training_dir"));
}

TEST(OptionParser, NotBuiltIsANoteInPlanAndAnErrorInTrain) {
  std::vector<std::string> arguments{"--moe=1", "--model_type=mixtral",
                                     "--context_parallel_degree=2"};
  ParsedOptions plan = parse(arguments);
  for (const char* option : {"--moe=True is not built yet", "--model_type=mixtral is not",
                             "--context_parallel_degree=2 is not"}) {
    EXPECT_TRUE(any_contains(plan.notes, option)) << option;
  }
  std::string error = user_error([&] { parse(arguments, OptionScope::kTrain); });
  for (const char* option : {"not built yet:", "--moe=True", "--model_type=mixtral",
                             "--context_parallel_degree=2", "leave them out"}) {
    expect_contains(error, option);
  }
  EXPECT_EQ(parse({"--device_type=cuda"}, OptionScope::kGenerate).config.device_type, "cuda");
  // Harmless values pass everywhere.
  ParsedOptions harmless =
      parse({"--use_wandb=0", "--context_parallel_degree=1", "--shard_degree=1", "--shard_degree=0",
             "--dataset_type=gpt_jsonl", "--num_local_experts=8"},
            OptionScope::kTrain);
  EXPECT_TRUE(harmless.notes.empty());
}

TEST(OptionParser, NoEffectWarnsOnce) {
  ParsedOptions parsed =
      parse({"--framework=fsdp", "--framework=fsdp", "--rank=3"}, OptionScope::kTrain);
  EXPECT_EQ(parsed.warnings,
            (std::vector<std::string>{"--framework has no effect: it is a name only",
                                      "--rank has no effect: the environment decides"}));
}

}  // namespace
}  // namespace tessera
