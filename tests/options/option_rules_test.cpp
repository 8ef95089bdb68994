// What options ask of each other (option_rules.h).
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

TEST(OptionRules, AModelIsWrittenToThisMachine) {
  expect_contains(usage_error({"--save_final_model", "1", "--model_dir", "s3://bucket/model"}),
                  "--model_dir 's3://bucket/model' is not of this machine");
  parse({"--save_final_model", "1", "--model_dir", "a:/b//c"});
}

TEST(OptionRules, SaysWhereNoModelIsWritten) {
  EXPECT_EQ(parse({"--model_dir", "m"}).warnings,
            std::vector<std::string>{"--model_dir has no effect without --save_final_model"});
  EXPECT_EQ(parse({"--save_final_model", "1", "--model_dir", "m", "--eval_only", "1"}).warnings,
            std::vector<std::string>{"--save_final_model has no effect with --eval_only"});
}

TEST(OptionRules, SaysWhatNeedsADirectoryOfCheckpoints) {
  const std::vector<std::string> words{"--best_val_loss=3", "--busy_checkpoint=skip",
                                       "--num_kept_checkpoints=3"};
  EXPECT_EQ(parse(words).warnings,
            (std::vector<std::string>{"--best_val_loss has no effect without --checkpoint_dir",
                                      "--busy_checkpoint has no effect without --checkpoint_dir",
                                      "--num_kept_checkpoints has no effect without "
                                      "--checkpoint_dir"}));
  std::vector<std::string> saved = words;
  saved.emplace_back("--checkpoint_dir=d");
  EXPECT_TRUE(parse(saved).warnings.empty());
}

TEST(OptionRules, DataThatOtherDataReplaceAreNamed) {
  EXPECT_EQ(parse({"--dataset=a", "--dataset_mix", "b=1", "c=1"}).warnings,
            std::vector<std::string>{"--dataset is not read: --dataset_mix is given in its place"});
  EXPECT_EQ(parse({"--dataset=a", "--training_dir=b", "--use_synthetic_data"}).warnings,
            (std::vector<std::string>{
                "--dataset is not read: --use_synthetic_data is given in its place",
                "--training_dir is not read: --use_synthetic_data is given in its place"}));
  EXPECT_TRUE(parse({"--dataset_mix", "b=1"}).warnings.empty());
}

TEST(OptionRules, OnePrecision) {
  EXPECT_TRUE(parse({"--use_fp16"}, OptionScope::kTrain).config.use_fp16);
  parse({"--use_fp16", "--bf16=0"});
  parse({"--use_fp16=0", "--bf16=1"});
  EXPECT_EQ(usage_error({"--use_fp16", "--bf16"}),
            "--bf16 and --use_fp16 contradict each other: give one");
  EXPECT_EQ(usage_error({"--mixed_precision", "--bf16", "--use_fp16"}),
            "--bf16 and --use_fp16 contradict each other: give one");
  // That precision is mixed says nothing of its format.
  EXPECT_TRUE(parse({"--mixed-precision=True", "--use_fp16=True"}).config.use_fp16);
}

TEST(OptionRules, NoStepsNeedALengthOfTheSchedule) {
  expect_contains(usage_error({"--max_steps", "0"}), "--max_steps 0 leaves the learning rate");
  expect_contains(usage_error({"--num_steps=0", "--eval_only", "1"}), "give at least 1");
  EXPECT_EQ(parse({"--max_steps", "0", "--lr_decay_iters", "5"}).config.max_steps, 0);
}

TEST(OptionRules, AHashOfTheDataNeedsAFile) {
  EXPECT_EQ(parse({"--data_hash"}).warnings,
            std::vector<std::string>{"--data_hash has no effect without --metrics_file"});
  EXPECT_TRUE(parse({"--data_hash", "--metrics_file=m"}).warnings.empty());
}

TEST(OptionRules, SaysWhichOptionsOfRecomputationAndOffloadAreIdle) {
  EXPECT_EQ(parse({"--activation_checkpointing=0", "--selective_checkpointing=2",
                   "--checkpointing_policy=op", "--activation_loading_horizon=1"})
                .warnings,
            (std::vector<std::string>{
                "--selective_checkpointing has no effect without --activation_checkpointing",
                "--checkpointing_policy has no effect without --activation_checkpointing",
                "--activation_loading_horizon has no effect without --offload_activations"}));
  EXPECT_TRUE(parse({"--offload_activations=1", "--activation_loading_horizon=1",
                     "--activation_checkpointing=0", "--cpu_offload=1"},
                    OptionScope::kTrain)
                  .warnings.empty());
}

TEST(OptionRules, SaysWhichOptionsAreOfOtherOptimizers) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(parse({"--momentum=0.5", "--beta1=0.8"}).warnings,
            Lines{"--momentum has no effect with --optimizer adamw"});
  EXPECT_EQ(parse({"--optimizer=SGD", "--momentum=0.5", "--beta1=0.8", "--beta2=0.9"}).warnings,
            (Lines{"--beta1 has no effect with --optimizer sgd",
                   "--beta2 has no effect with --optimizer sgd"}));
  EXPECT_TRUE(parse({"--optimizer=lion", "--beta2=0.99"}).warnings.empty());
  expect_contains(usage_error({"--optimizer=muon"}), "adamw, sgd, lion");
}

TEST(OptionRules, SaysWhichOptionsAreOfOtherCurves) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(parse({"--plateau=0.1", "--step_lr_gamma=0.5"}).warnings,
            (Lines{"--plateau has no effect with --lr_decay_style cosine",
                   "--step_lr_gamma has no effect with --lr_decay_style cosine"}));
  for (const std::string style : {"fms", "step"})
    EXPECT_EQ(parse({"--lr_decay_style", style, "--min_lr=1e-5", "--warmup=0.1"}).warnings,
              (Lines{cat("--min_lr has no effect with --lr_decay_style ", style),
                     cat("--warmup has no effect with --lr_decay_style ", style)}));
  EXPECT_TRUE(parse({"--lr_decay_style=step", "--step_lr_gamma=0.5"}).warnings.empty());
  EXPECT_TRUE(parse({"--lr_decay_style=plateau", "--plateau=0.1"}).warnings.empty());
  EXPECT_TRUE(parse({"--plateau=0"}).warnings.empty());  // none, as all others have
}

TEST(OptionRules, Fp8ThatIsAskedForIsNotBuilt) {
  EXPECT_EQ(parse({"--fp8", "1"}).warnings,
            std::vector<std::string>{
                "--fp8 has no effect: fp8 is not built: --bf16 and --use_fp16 decide"});
  EXPECT_TRUE(parse({"--bf16=0", "--fp8=0"}).warnings.empty());
}

TEST(OptionRules, FineTuning) {
  expect_contains(usage_error({"--finetune=1"}),
                  "needs --pretrained_model_name or --pretrained_checkpoint_file");
  expect_contains(usage_error({"--finetune", "--pretrained_model_name=llama2_7b"}),
                  "--finetune_checkpoint_load_dir with the weights is required");
  expect_contains(usage_error({"--pretrained_model_name=llama2_7b"}), "needs --finetune 1");
  expect_contains(usage_error({"--pretrained_checkpoint_file=f"}), "needs --finetune 1");
  expect_contains(
      usage_error({"--finetune", "--pretrained_model_name=x", "--pretrained_checkpoint_file=f"}),
      "contradict each other");
  expect_contains(usage_error({"--finetune", "--hf_model=gpt2", "--pretrained_checkpoint_file=f"}),
                  "contradict each other");
  expect_contains(usage_error({"--finetune_checkpoint_load_dir=d"}),
                  "needs --pretrained_model_name");
  parse({"--finetune", "--pretrained_model_name=llama2_7b", "--finetune_checkpoint_load_dir=d"});
  parse({"--finetune=1", "--pretrained_checkpoint_file=f"});
  parse({"--hf_model=gpt2"});
  ParsedOptions resumed = parse({"--finetune=1", "--resume_from_checkpoint=p"});
  EXPECT_TRUE(any_contains(resumed.notes, "wins over --finetune"));
  expect_contains(usage_error({"--save_final_model"}), "needs --model_dir or --checkpoint_dir");
  parse({"--save_final_model", "--model_dir=d"}, OptionScope::kTrain);
}

TEST(OptionRules, TensorParallelismForcesTheLayersItNeeds) {
  ParsedOptions parsed = parse({"--tensor_parallel_degree=8"});
  EXPECT_TRUE(parsed.config.use_smp_implementation);
  EXPECT_TRUE(any_contains(
      parsed.notes, "Tensor parallelism is enabled as tensor_parallel_degree is set to 8 > 1."));
}

// What a training script means something by has its effect or is refused.
TEST(OptionRules, NothingIsWrappedBySize) {
  const std::vector<std::string> words{"--auto_wrap_policy=size_based_auto_wrap_policy"};
  expect_contains(user_error([&] { parse(words, OptionScope::kTrain); }),
                  "not built yet: --auto_wrap_policy=size_based_auto_wrap_policy");
  EXPECT_TRUE(any_contains(parse(words).notes, "size_based_auto_wrap_policy is not built yet"));
  for (const char* option : {"fast_validation", "best_val_loss", "auto_wrap_policy"})
    EXPECT_EQ(find_option(option)->status, OptionStatus::kWorks) << option;
}

TEST(OptionRules, BaselinesAreOfTextInWindows) {
  const std::vector<std::string> asks{"--compare_baselines", "1"};
  auto refusal = [&](std::vector<std::string> words) {
    words.insert(words.end(), asks.begin(), asks.end());
    return usage_error(words);
  };
  expect_contains(refusal({"--use_synthetic_data", "1"}), ": leave out --use_synthetic_data");
  expect_contains(refusal({"--dataset_mix", "a=1", "b=1"}), ": leave out --dataset_mix");
  expect_contains(refusal({"--streaming", "on"}), ": leave out --streaming on");
  expect_contains(refusal({"--packing", "rows"}), ": leave out --packing rows");
  parse({"--compare_baselines", "1", "--packing", "concatenate", "--dataset_mix", "a=1"});
}

}  // namespace
}  // namespace tessera
