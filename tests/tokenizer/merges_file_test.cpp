#include "tokenizer/merges_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

struct Pair {
  std::string vocabulary, merges;
};

// The tokenizer of the goldens as such a pair.
Pair golden_pair() {
  Json model =
      Json::parse(read_file(TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/tokenizer.json"))["model"];
  Pair pair{model["vocab"].dump(), "#version: 0.2\n"};
  for (const Json& merge : model["merges"]) {
    pair.merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  return pair;
}

BpeModel parse(const Pair& pair) { return parse_merges_pair(pair.vocabulary, pair.merges, "pair"); }

TEST(MergesPair, IsTheSameModelAsATokenizerJson) {
  std::string golden = read_file(TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/tokenizer.json");
  EXPECT_TRUE(parse(golden_pair()) == parse_byte_level_json(golden, "golden"));
}

TEST(MergesPair, LineEndsAndTheVersionLineDoNotMatter) {
  Pair pair = golden_pair(), other = pair;
  other.merges = "";
  std::string_view rest = pair.merges;
  take_line(rest);
  while (!rest.empty()) other.merges += cat(take_line(rest), "\r\n");
  EXPECT_TRUE(parse(other) == parse(pair));
  other.merges.resize(other.merges.size() - 2);
  EXPECT_TRUE(parse(other) == parse(pair));
}

TEST(MergesPair, TheEndOfTextMayHaveAnotherName) {
  Pair pair = golden_pair();
  Json vocabulary = Json::parse(pair.vocabulary);
  vocabulary["<|done|>"] = 700;
  BpeModel model = parse_merges_pair(vocabulary.dump(), pair.merges, "pair", "<|done|>");
  EXPECT_EQ(model.end_of_text, 700);
}

TEST(MergesPair, BrokenPairsAreRefused) {
  auto expect_error = [](const char* cause, Pair pair) {
    std::string message = user_error([&] { parse(pair); });
    expect_contains(message, "'pair'");
    expect_contains(message, cause);
  };
  Pair good = golden_pair();
  expect_error("line 445 of its merges is not two tokens", {good.vocabulary, good.merges + "ab\n"});
  expect_error("line 445 of its merges", {good.vocabulary, good.merges + "a b c\n"});
  expect_error("'e', is there twice", {good.vocabulary, "h e\nh e\n"});
  expect_error("'qq' is not an ordinary token", {good.vocabulary, "q q\n"});
  expect_error("not valid JSON", {"{", good.merges});
  expect_error("not an object", {"[]", good.merges});
  expect_error("no <|endoftext|>", {"{\"a\": 0}", good.merges});
  expect_error("no valid id", {"{\"a\": \"x\"}", good.merges});
}

}  // namespace
}  // namespace tessera
