#include "apps/tokenizer_command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

const std::string kCorpus = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/corpus.txt";
const std::string kGolden = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/tokenizer.json";

class TokenizerCommand : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string with(const std::string& name, const std::string& content) const {
    return folder_.write(name, content);
  }

  // What the command prints.
  std::string run(std::vector<std::string> words) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(tokenizer_command(words), 0);
    return testing::internal::GetCapturedStdout();
  }

  template <class E>
  void expect_error(const char* cause, std::vector<std::string> words) {
    expect_contains(message_of<E>([&] { tokenizer_command(words); }), cause);
  }

  ScratchDirectory folder_;
};

TEST_F(TokenizerCommand, TrainsATokenizerThatLoads) {
  std::string said = run({"train", "--input", kCorpus, "--vocab_size", "700", "--threads=2",
                          "--output", file("tokenizer.json")});
  expect_contains(said, "700 tokens");
  EXPECT_EQ(load_tokenizer(folder_.path().string())->fingerprint(),
            load_tokenizer(kGolden)->fingerprint());
}

TEST_F(TokenizerCommand, TakesSeveralInputsAndBothSpellings) {
  std::string one = with("one.txt", "aab aab"), two = with("two.jsonl", "{\"text\": \"aab\"}\n");
  std::string said = run({"train", "--vocab-size=300", "--input", one, two, "--min-frequency", "3",
                          "--output=" + file("tokenizer.json")});
  expect_contains(said, "instead of 300");
  expect_contains(said, "2 documents");
  EXPECT_EQ(load_tokenizer(file("tokenizer.json"))->token_bytes(257), "aa");
}

TEST_F(TokenizerCommand, SkipsBrokenLinesOnRequest) {
  std::string lines = with("lines.jsonl", "{\"text\": \"abab\"}\n{broken\n");
  std::vector<std::string> words{"train", "--input", lines, "--output", file("tokenizer.json")};
  expect_error<UserError>("lines.jsonl", words);
  EXPECT_FALSE(std::filesystem::exists(file("tokenizer.json")));
  words.insert(words.end(), {"--on_bad_line", "skip"});
  run(words);
  EXPECT_TRUE(std::filesystem::exists(file("tokenizer.json")));
}

TEST_F(TokenizerCommand, DecodesWhatItEncodes) {
  std::string text = "Any bytes: \xFF\x01 <|endoftext|>\n";
  for (const std::string& tokenizer : {std::string("byte"), kGolden}) {
    std::string ids = run({"encode", "--tokenizer", tokenizer, with("text", text)});
    EXPECT_EQ(run({"decode", "--tokenizer", tokenizer, with("ids", ids)}), text);
  }
  EXPECT_EQ(run({"encode", "--tokenizer=byte", with("text", "Hi")}), "72 105\n");
  EXPECT_EQ(run({"decode", "--tokenizer=byte", with("ids", "72,105\n\n256")}), "Hi<|endoftext|>");
  EXPECT_EQ(run({"decode", "--tokenizer=byte", with("ids", " \n")}), "");
}

// It puts a space in front of a text, which is not the text's.
TEST_F(TokenizerCommand, DecodesWhatSentencePieceEncodes) {
  std::string tokenizer = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/sentencepiece/bpe.model";
  for (const char* text : {"the reader", " the", "\n\u4f60"}) {
    std::string ids = run({"encode", "--tokenizer", tokenizer, with("text", text)});
    EXPECT_EQ(run({"decode", "--tokenizer", tokenizer, with("ids", ids)}), text);
  }
}

TEST_F(TokenizerCommand, PrintsInfoAndHelp) {
  std::string info = run({"info", "--tokenizer", kGolden});
  expect_contains(info, "700 tokens, 443 merges");
  expect_contains(info, "end of text  0 (<|endoftext|>)");
  expect_lacks(info, "before text");
  info = run({"info", "--tokenizer", TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/llama3.json"});
  expect_contains(info, "before text  702 (<|begin_of_text|>)");
  for (std::vector<std::string> words :
       {std::vector<std::string>{"--help"}, {"train", "--help"}, {"decode", "-h"}}) {
    expect_contains(run(words), "Examples:");
  }
}

TEST_F(TokenizerCommand, WrongCommandLinesAreUsageErrors) {
  expect_error<UsageError>("train, encode, decode or info", {});
  expect_error<UsageError>("did you mean encode", {"encoder"});
  expect_error<UsageError>("did you mean --vocab_size", {"train", "--vocabsize", "9"});
  expect_error<UsageError>("unknown option --input", {"info", "--input", "x"});
  expect_error<UsageError>("--input is required", {"train", "--output", "x"});
  expect_error<UsageError>("--output is required", {"train", "--input", kCorpus});
  expect_error<UsageError>("--tokenizer is required", {"info"});
  expect_error<UsageError>("--tokenizer needs a value", {"info", "--tokenizer"});
  expect_error<UsageError>("--tokenizer is required", {"info", "--tokenizer="});
  expect_error<UsageError>("--tokenizer is required", {"info", "--tokenizer", ""});
  expect_error<UsageError>("--output needs a value",
                           {"train", "--input", kCorpus, "--output", "--help"});
  expect_error<UsageError>("given twice", {"info", "--tokenizer=byte", "--tokenizer", "byte"});
  expect_error<UsageError>("the tokenizer is given by --tokenizer",
                           {"info", "--tokenizer", "byte", "here.txt"});
  expect_error<UsageError>("one file at most", {"encode", "--tokenizer", "byte", "a", "b"});
  expect_error<UsageError>("from 257", {"train", "--vocab_size", "256"});
  expect_error<UsageError>("'8k'", {"train", "--vocab_size", "8k"});
  expect_error<UsageError>("--threads", {"train", "--threads", "0"});
  expect_error<UsageError>("--on_bad_line",
                           {"train", "--input", kCorpus, "--on_bad_line", "ignore"});
  expect_error<UsageError>("--output 's3://bucket/t.json' is not of this machine",
                           {"train", "--input", kCorpus, "--output", "s3://bucket/t.json"});
}

TEST_F(TokenizerCommand, BadInputIsNamed) {
  std::string output = file("tokenizer.json");
  expect_error<UserError>("/no/such.txt", {"train", "--input", "/no/such.txt", "--output", output});
  expect_error<UserError>("no text", {"train", "--input", with("empty", ""), "--output", output});
  expect_error<UserError>("/no/such", {"encode", "--tokenizer", "byte", "/no/such"});
  expect_error<UserError>("'x7' is not a token id",
                          {"decode", "--tokenizer", "byte", with("ids", "1 x7")});
  expect_error<UserError>("token id 257", {"decode", "--tokenizer", "byte", with("ids", "1 257")});
  expect_error<UserError>("'gpt3'", {"info", "--tokenizer", "gpt3"});
  expect_error<UserError>("/no/such/", {"train", "--input", kCorpus, "--vocab_size", "300",
                                        "--output", "/no/such/tokenizer.json"});
}

}  // namespace
}  // namespace tessera
