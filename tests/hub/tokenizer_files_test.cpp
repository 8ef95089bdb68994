#include "hub/tokenizer_files.h"

#include "base/file.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

TEST(TokenizerFiles, AreCopiedUnderTheNamesOfTransformers) {
  ScratchDirectory scratch;
  std::filesystem::path from = scratch / "from", to = scratch / "to";
  std::filesystem::create_directory(from);
  std::filesystem::create_directory(to);
  EXPECT_FALSE(has_tokenizer(from));
  for (const char* name : {"encoder.json", "vocab.bpe", "generation_config.json", "config.json",
                           "pytorch_model.bin", "README.md"})
    make_file(from / name, name);
  EXPECT_TRUE(has_tokenizer(from));
  copy_tokenizer_files(from, to);
  EXPECT_EQ(names_in(to), (Names{"vocab.json", "merges.txt", "generation_config.json"}));
  EXPECT_EQ(read_file(to / "merges.txt"), "vocab.bpe");
  EXPECT_TRUE(has_tokenizer(to));
  EXPECT_FALSE(is_tokenizer_file("config.json"));
  EXPECT_TRUE(is_tokenizer_file("vocab.bpe"));
}

TEST(TokenizerFiles, AModelOfAnyNameIsATokenizer) {
  ScratchDirectory scratch;
  make_file(scratch / "spiece.model", "model");
  EXPECT_TRUE(has_tokenizer(scratch.path()));
  make_file(scratch / "other.model", "model");
  EXPECT_FALSE(has_tokenizer(scratch.path()));
}

Names names_of(const TokenizerFiles& kept) {
  Names names;
  for (const AttachedFile& file : kept.files) names.insert(file.name);
  return names;
}

TEST(TokenizerFiles, OfACheckpointAreThoseThatTheIdsDependOn) {
  ScratchDirectory scratch;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "config.json", "my.json",
                           "ranks.tiktoken", "model.safetensors", "notes.txt"})
    make_file(scratch / name, name);
  const Names beside{"tokenizer.json", "tokenizer_config.json", "config.json"};
  auto with = [&](const char* name) {
    Names names = beside;
    names.insert(name);
    return names;
  };
  TokenizerFiles kept = read_tokenizer_files(scratch.path());
  EXPECT_EQ(kept.place, "tokenizer");
  EXPECT_EQ(names_of(kept), with("ranks.tiktoken"));
  EXPECT_EQ(kept.files[0].content, "config.json");

  kept = read_tokenizer_files(scratch / "tokenizer.json");
  EXPECT_EQ(kept.place, "tokenizer/tokenizer.json");
  EXPECT_EQ(names_of(kept), beside);
  kept = read_tokenizer_files(scratch / "my.json");
  EXPECT_EQ(kept.place, "tokenizer/my.json");
  EXPECT_EQ(names_of(kept), with("my.json"));
  make_file(scratch / "\xc3.model", "m");  // no manifest can name it
  kept = read_tokenizer_files(scratch / "\xc3.model");
  EXPECT_EQ(kept.place, "tokenizer/given.model");
  EXPECT_EQ(names_of(kept), with("given.model"));

  EXPECT_EQ(read_tokenizer_files("byte").place, "byte");
  EXPECT_TRUE(read_tokenizer_files("byte").files.empty());
}

}  // namespace
}  // namespace tessera
