// `tessera export` of models that no run of tessera has saved, and over what is there.
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class ExportModel : public ProgramTest {
 protected:
  void make_model() {
    ok(train({"--max_steps", "2", "--checkpoint_dir", "ckpt", "--threads", "1"}));
    ok({"export", "ckpt", "model"});
  }
};

TEST_F(ExportModel, OfHuggingFace) {
  make_model();
  ok({"export", "model", "again"});
  for (const std::string& name : names("model"))
    EXPECT_TRUE(read_file(path("again/" + name)) == read_file(path("model/" + name))) << name;
  ok({"export", "model", "a/m.gguf", "--format", "gguf"});
  ok({"export", "ckpt", "b/m.gguf", "--format", "gguf"});
  EXPECT_TRUE(read_file(path("a/m.gguf")) == read_file(path("b/m.gguf")));
  expect_contains(run({"export", "text.txt", "x"}).message(), "is a file");
  expect_contains(run({"export", "nothing", "x"}).message(),
                  "there is no complete checkpoint in 'nothing', and it is no Hugging Face model");
}

TEST_F(ExportModel, WithAnAdapter) {
  make_model();
  ok({"train", "--hf_model", "model", "--dataset", "text.txt", "--max_context_width", "16",
      "--max_steps", "2", "--threads", "1", "--bf16", "0", "--lora_rank", "2", "--checkpoint_dir",
      "lora"});
  ok({"export", "lora", "adapter"});
  ok({"export", "lora", "of_run", "--merge_adapter", "1"});
  expect_contains(
      run({"export", "adapter", "x"}).message(),
      "'adapter' is an adapter: give the model that it was made for, and --lora_adapter");
  ok({"export", "model", "merged", "--lora_adapter", "adapter", "--merge_adapter", "1"});
  EXPECT_TRUE(read_file(path("merged/model.safetensors")) ==
              read_file(path("of_run/model.safetensors")));
  ok({"export", "model", "again", "--lora_adapter", "adapter"});
  EXPECT_TRUE(read_file(path("again/adapter_config.json")) ==
              read_file(path("adapter/adapter_config.json")));
}

TEST_F(ExportModel, SaysWhichFilesOfATokenizerItReplaces) {
  make_model();
  expect_lacks(ok({"export", "ckpt", "model"}).err, "written anew");
  write("model/tokenizer_config.json", "{}");
  expect_contains(
      ok({"export", "ckpt", "model"}).err,
      "'model' is written anew; of the tokenizer's files there are replaced or removed: "
      "'tokenizer_config.json'");
}

}  // namespace
}  // namespace tessera
