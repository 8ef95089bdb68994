#include "tokenizer/sentencepiece_json.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "tests/base/error_expectation.h"
#include "tokenizer/sentencepiece.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Json golden() {
  return Json::parse(
      read_file(TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/sentencepiece/llama.json"));
}

SentencePieceModel model_of(const Json& file, const std::string& end_of_text = "") {
  return sentencepiece_model(parse_tokenizer_file(file.dump(), "given.json"), end_of_text);
}

// The golden file is read after `change` has been made to it: the error must name file and cause.
void expect_error(const char* cause, const std::function<void(Json&)>& change) {
  Json file = golden();
  change(file);
  std::string message = user_error([&] { model_of(file); });
  expect_contains(message, "given.json");
  expect_contains(message, cause);
}

Json metaspace() { return {{"type", "Metaspace"}, {"replacement", "\u2581"}}; }

TEST(SentencePieceJson, IsToldFromByteLevelFiles) {
  auto is_one = [](const Json& file) {
    return is_sentencepiece(parse_tokenizer_file(file.dump(), "given.json"));
  };
  EXPECT_TRUE(is_one(golden()));
  Json file = golden();
  file["model"]["byte_fallback"] = false;
  EXPECT_TRUE(is_one(file));
  file["normalizer"] = nullptr;
  EXPECT_FALSE(is_one(file));
  file["pre_tokenizer"] = metaspace();
  EXPECT_TRUE(is_one(file));
}

TEST(SentencePieceJson, EndOfTextAndPrefix) {
  EXPECT_EQ(model_of(golden()).end_of_text, 2);
  EXPECT_EQ(model_of(golden(), "<s>").end_of_text, 1);
  EXPECT_THROW(model_of(golden(), "<end>"), UserError);
  EXPECT_EQ(model_of(golden()).document_prefix, std::vector<int32_t>{1});
  Json file = golden();
  file["post_processor"] = nullptr;
  EXPECT_TRUE(model_of(file).document_prefix.empty());
}

TEST(SentencePieceJson, OldFormOfMetaspace) {
  using Prefix = SentencePieceModel::Prefix;
  Json file = golden();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = metaspace();
  for (bool prefix : {false, true}) {
    file["pre_tokenizer"]["add_prefix_space"] = prefix;
    file["pre_tokenizer"]["str_rep"] = "\u2581";
    SentencePieceModel model = model_of(file);
    EXPECT_EQ(model.prefix, prefix ? Prefix::kSpaceUnlessThere : Prefix::kNone);
    EXPECT_FALSE(model.prefix_once);
    EXPECT_LT(model.merges->size(), model_of(golden()).merges->size());  // none across words
  }
}

TEST(SentencePieceJson, ComponentsThatAreNotSupported) {
  expect_error("normalizer NFKC", [](Json& f) { f["normalizer"] = {{"type", "NFKC"}}; });
  expect_error("option content",
               [](Json& f) { f["normalizer"]["normalizers"][1]["content"] = "_"; });
  expect_error("option pattern", [](Json& f) {
    f["normalizer"]["normalizers"][1]["pattern"] = {{"Regex", " +"}};
  });
  expect_error("option prepend",
               [](Json& f) { f["normalizer"]["normalizers"][0]["prepend"] = "x"; });
  expect_error("without a Replace", [](Json& f) { f["normalizer"]["normalizers"].erase(1); });
  expect_error("pre_tokenizer null", [](Json& f) { f["normalizer"] = nullptr; });
  expect_error("pre_tokenizer Whitespace", [](Json& f) {
    f["pre_tokenizer"] = {{"type", "Whitespace"}};
  });
  expect_error("a normalizer before pre_tokenizer Metaspace",
               [](Json& f) { f["pre_tokenizer"] = metaspace(); });
  expect_error("option replacement", [](Json& f) {
    f["normalizer"] = nullptr;
    f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}};
  });
  expect_error("option prepend_scheme", [](Json& f) {
    f["normalizer"] = nullptr;
    f["pre_tokenizer"] = metaspace();
    f["pre_tokenizer"]["prepend_scheme"] = "often";
  });
  expect_error("decoder null", [](Json& f) { f["decoder"] = nullptr; });
  expect_error("decoder WordPiece", [](Json& f) { f["decoder"] = {{"type", "WordPiece"}}; });
  expect_error("ignore_merges", [](Json& f) { f["model"]["ignore_merges"] = true; });
}

TEST(SentencePieceJson, VocabulariesThatDoNotFit) {
  expect_error("not every byte", [](Json& f) {
    auto id = f["model"]["vocab"]["<0x41>"];
    f["model"]["vocab"].erase("<0x41>");
    f["model"]["vocab"]["<0xzz>"] = id;
  });
  expect_error("neither an unk_token nor byte_fallback", [](Json& f) {
    f["model"]["byte_fallback"] = false;
    f["model"]["unk_token"] = nullptr;
  });
  expect_error("unk_token \"<none>\"", [](Json& f) { f["model"]["unk_token"] = "<none>"; });
  expect_error("do not have the ids 0 to", [](Json& f) { f["model"]["vocab"]["<s>x"] = 900; });
  expect_error("two tokens have id 9", [](Json& f) { f["model"]["vocab"]["<s>x"] = 9; });
  expect_error("is empty", [](Json& f) { f["model"]["vocab"][""] = 640; });
  expect_error("merge 0: 'qqq'", [](Json& f) { f["model"]["merges"][0] = {"qqq", "a"}; });
  expect_error("is there twice",
               [](Json& f) { f["model"]["merges"].push_back(f["model"]["merges"][0]); });
}

}  // namespace
}  // namespace tessera
