// tessera checkpoint convert, and what takes its results, as a user meets them.
#include <gtest/gtest.h>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class CheckpointConvert : public ProgramTest {
 protected:
  ProgramResult convert(const Words& words) { return run(Words{"checkpoint", "convert"} + words); }
  void must(const ProgramResult& result) { ASSERT_EQ(result.status, 0) << result.err; }
  std::vector<double> losses(const std::string& file) const {
    std::vector<double> all;
    std::string content = read_file(path(file));
    std::string_view lines = content;
    while (!lines.empty()) {
      Json line = Json::parse(take_line(lines));
      if (line.contains("loss")) all.push_back(line["loss"]);
    }
    return all;
  }
};

TEST_F(CheckpointConvert, ThereAndBackChangesNoBitOfTheRun) {
  must(run(train({"--max_steps", "6", "--checkpoint_dir", "ckpt"})));
  ProgramResult there = convert({"ckpt", "torch"});
  must(there);
  expect_contains(there.out, "made of       ckpt/llama_v2-6steps\n");
  EXPECT_EQ(names("torch"), (std::set<std::string>{".metadata", "__0_0.distcp", "config.json"}));
  ProgramResult back = convert({"torch", "again", "--position", "24"});
  must(back);
  expect_contains(back.out, "checkpoint    again/llama_v2-6steps\n");
  expect_contains(back.out, "step          6\nnext sample   24\n");
  expect_contains(back.out,
                  "--resume_from_checkpoint again --lr 0.01 --beta1 0.9 --beta2 0.95 "
                  "--weight_decay 0.2\n");
  must(run({"checkpoint", "verify", "again"}));
  must(run(train({"--max_steps", "12", "--checkpoint_dir", "ckpt", "--resume_from_checkpoint",
                  "ckpt", "--metrics_file", "one.jsonl"})));
  ProgramResult resumed =
      run(train({"--max_steps", "12", "--checkpoint_dir", "again", "--resume_from_checkpoint",
                 "again", "--metrics_file", "two.jsonl"}));
  must(resumed);
  expect_contains(resumed.err + resumed.out, "the schedule is that of the options, from step 6 on");
  expect_lacks(resumed.err + resumed.out, "goes on with other options");
  EXPECT_EQ(losses("one.jsonl").size(), 6u);
  EXPECT_EQ(losses("one.jsonl"), losses("two.jsonl"));
}

TEST_F(CheckpointConvert, ARunSaysHowToConvertAndTakesWeights) {
  must(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})));
  must(convert({"ckpt/llama_v2-2steps", "torch/step-2"}));
  ProgramResult refused = run(train({"--resume_from_checkpoint", "torch", "--max_steps", "3"}));
  EXPECT_EQ(refused.status, 1);
  expect_contains(refused.message(),
                  "'torch/step-2' is a checkpoint of PyTorch's: "
                  "`tessera checkpoint convert torch/step-2 DIR`");
  refused = run(train({"--finetune", "1", "--resume_from_checkpoint", "torch"}));
  EXPECT_EQ(refused.status, 1);
  expect_contains(refused.message(), "`tessera checkpoint convert torch/step-2 DIR`");
  expect_contains(run({"generate", "torch/step-2", "--tokenizer", "byte"}).message(),
                  "`tessera checkpoint convert torch/step-2 DIR` makes one of tessera");
  auto evaluate = [&](const Words& source) {
    ProgramResult result = run(
        Words{"train"} + tiny_job() +
        Words{"--eval_only", "1", "--validation_dataset", "text.txt", "--threads", "2"} + source);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string all = result.out + result.err;
    const size_t at = all.find("Validation loss: ");
    return at == all.npos ? all : all.substr(at, all.find('\n', at) - at);
  };
  const std::string expected = evaluate({"--resume_from_checkpoint", "ckpt"});
  expect_contains(expected, "Validation loss: ");
  EXPECT_EQ(evaluate({"--finetune", "1", "--pretrained_checkpoint_file", "torch/step-2"}),
            expected);
}

TEST_F(CheckpointConvert, OwnCheckpointsComeBeforeWhatLiesBelowThem) {
  must(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})));
  // As a job leaves it that writes, or was killed.
  const std::string half = "llama_v2-4steps.tmp-12345.77.abc.def0";
  fs::create_directories(path("ckpt/" + half));
  fs::copy_file(path("ckpt/llama_v2-2steps/state.safetensors"),
                path("ckpt/" + half + "/state.safetensors"));
  for (const std::string to : {"ckpt/for-pytorch", "torch"}) {
    ProgramResult there = convert({"ckpt", to});
    must(there);
    expect_contains(there.out, "made of       ckpt/llama_v2-2steps\n");
  }
  fs::remove_all(path("ckpt/llama_v2-2steps"));
  fs::remove_all(path("ckpt/for-pytorch"));
  expect_contains(convert({"ckpt", "x"}).message(), "is neither a complete checkpoint of tessera");
  fs::create_directories(path("ckpt/cache"));
  write("ckpt/cache/0001.pt", "hello");
  ProgramResult fresh = run(train({"--max_steps", "1", "--resume_from_checkpoint", "ckpt"}));
  must(fresh);
  expect_contains(fresh.out + fresh.err, "No Checkpoints Found");
}

TEST_F(CheckpointConvert, WhatIsWrongIsSaid) {
  auto refusal = [&](const Words& words, int status) {
    ProgramResult result = convert(words);
    EXPECT_EQ(result.status, status) << result.err;
    return result.message();
  };
  expect_contains(refusal({"ckpt"}, 2), "tessera checkpoint convert FROM TO");
  expect_contains(refusal({"nothing", "hf://me/x"}, 2), "'hf://me/x' is not of this machine");
  expect_contains(refusal({"nothing", "x"}, 1), "is neither a complete checkpoint of tessera nor");
  must(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})));
  expect_contains(refusal({"ckpt", "torch", "--position", "3"}, 2),
                  "--position is for checkpoints of other programs");
  expect_contains(refusal({"ckpt", "ckpt"}, 1), "'ckpt' is there and not empty");
  must(convert({"ckpt", "torch"}));
  fs::remove(path("torch/config.json"));
  expect_contains(refusal({"torch", "again"}, 2),
                  "which model is it? There is no 'torch/config.json'");
  expect_contains(refusal({"text.txt", "again"}, 1),
                  "'text.txt' is neither a complete checkpoint of tessera nor one of PyTorch's");
  expect_contains(refusal({"torch", "again", "--model_name", "gpt2"}, 1), "no weights of a gpt2");
  std::string metadata = read_file(path("torch/.metadata"));
  write("torch/.metadata", metadata.substr(0, metadata.size() / 2));
  expect_contains(refusal({"torch", "again", "--model_name", "gpt2"}, 1),
                  "torch/.metadata' cannot be read");
  EXPECT_FALSE(exists("again"));
}

TEST_F(CheckpointConvert, APositionBehindTheDataIsSaid) {
  must(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})));
  must(convert({"ckpt", "torch"}));
  must(convert({"torch", "again", "--position", "5000"}));
  ProgramResult none = run(train({"--max_steps", "4", "--resume_from_checkpoint", "again"}));
  must(none);
  expect_contains(none.out + none.err, "The run goes on at window 5000, but its data end at ");
  expect_contains(none.out + none.err, "there is nothing left to train on");
}

TEST_F(CheckpointConvert, AGgufFileIsWrittenOnce) {
  must(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})));
  auto refusal = [&](const Words& words, int status) {
    ProgramResult result = run(Words{"export", "ckpt", "model.gguf"} + words);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_FALSE(exists("model.gguf"));
    return result.message();
  };
  expect_contains(refusal({}, 2), "give --format gguf, or another name");
  expect_contains(refusal({"--format", "gguf", "--max_shard_size", "1GB"}, 2), "writes one file");
  expect_contains(refusal({"--format", "gguf", "--merge_adapter", "1"}, 1), "without adapters");
  must(run({"export", "ckpt", "model.gguf", "--format", "gguf", "--dtype", "bf16"}));
  EXPECT_EQ(read_file(path("model.gguf")).substr(0, 8), std::string("GGUF\3\0\0\0", 8));
  ProgramResult again = run({"export", "ckpt", "model.gguf", "--format", "gguf"});
  EXPECT_EQ(again.status, 1);
  expect_contains(again.message(), "'model.gguf' is there: give another name");
}

}  // namespace
}  // namespace tessera
