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

TEST(TokenizerFiles, TheVocabularyOfMetaIsReadWithoutRunningIt) {
  using namespace std::literals;
  ScratchDirectory scratch;
  const std::filesystem::path meta = scratch / "meta.pkl";
  auto vocabulary = [&](std::string_view bytes) {
    write_file_atomic(meta, bytes);
    return read_meta_vocabulary(meta);
  };
  auto refusal = [&](std::string_view bytes) {
    std::string message = user_error([&] { vocabulary(bytes); });
    expect_contains(message, cat("'", meta.string(), "'"));
    return message;
  };
  // What Python's pickle makes of {"vocab_size": 400, "itos": {0: " ", 1: "!"}, "stoi": {...}}.
  EXPECT_EQ(
      vocabulary(
          "\x80\x02}q\x00(X\n\x00\x00\x00vocab_sizeq\x01M\x90\x01X\x04\x00\x00\x00itosq\x02}q\x03("
          "K\x00X\x01\x00\x00\x00 "
          "q\x04K\x01X\x01\x00\x00\x00!q\x05uX\x04\x00\x00\x00stoiq\x06}q\x07("
          "h\x04K\x00h\x05K\x01uu."sv),
      400);
  EXPECT_EQ(
      vocabulary(
          "\x80\x04\x95?\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\nvocab_"
          "size\x94M\x90\x01\x8c\x04itos\x94}"
          "\x94(K\x00\x8c\x01 \x94K\x01\x8c\x01!\x94u\x8c\x04stoi\x94}\x94(h\x04K\x00h\x05K\x01uu."sv),
      400);
  expect_contains(refusal("\x80\x02"
                          "cposix\nsystem\nX\x04\x00\x00\x00true\x85R."sv),
                  "posix.system");
  expect_contains(refusal("\x80\x02}."sv), "has no vocab_size");
  expect_contains(refusal("\x80\x02]."sv), "a dict");
  expect_contains(refusal("\x80\x02}X\n\x00\x00\x00vocab_sizeK\x00s."sv), "its vocab_size is 0");
  expect_contains(refusal("\x80\x02}X\n\x00\x00\x00vocab_sizeNs."sv), "its vocab_size");
  expect_contains(refusal("\x80\x02}X\n\x00"sv), "truncated");
  expect_contains(refusal(std::string((16 << 20) + 1, 'x')), "more than 16 MiB");
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
