#include "tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Json golden(const std::string& name = "tokenizer.json") {
  return Json::parse(read_file(TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/" + name));
}

BpeModel parse(const Json& file) { return parse_byte_level_json(file.dump(), "given.json"); }

std::string error_of(const std::string& text) {
  return user_error([&] { parse_byte_level_json(text, "given.json"); });
}

// The golden file is read after `change` has been made to it: the error must name file and cause.
void expect_error(const char* cause, const std::function<void(Json&)>& change,
                  const std::string& name = "tokenizer.json") {
  Json file = golden(name);
  change(file);
  std::string message = error_of(file.dump());
  expect_contains(message, "given.json");
  expect_contains(message, cause);
}

TEST(TokenizerJson, WrittenFilesReadBack) {
  BpeModel model = parse(golden());
  EXPECT_EQ(model.tokens.size(), 700u);
  EXPECT_EQ(model.merges.size(), 443u);
  ScratchDirectory scratch;
  auto path = scratch / "written.json";
  write_tokenizer_json(path, model);
  EXPECT_TRUE(parse_byte_level_json(read_file(path), "written") == model);
  // In order of ids, for people who look.
  auto text = nlohmann::ordered_json::parse(read_file(path));
  EXPECT_EQ(text.at("model").at("vocab").begin().key(), "<|endoftext|>");
  EXPECT_EQ(text.at("model").at("merges").size(), 443u);
}

TEST(TokenizerJson, AllThatIsReadIsWritten) {
  for (const char* name : {"llama3.json", "neox.json"}) {
    Json file = golden(name);
    for (const char* flag : {"normalized", "single_word", "lstrip", "rstrip"}) {
      size_t id = parse(file).tokens.size();
      file["added_tokens"].push_back({{"id", id}, {"content", flag}, {flag, true}});
    }
    file["added_tokens"].push_back({{"id", file["model"]["vocab"]["a"]}, {"content", "a"}});
    BpeModel model = parse(file);
    EXPECT_TRUE(parse_byte_level_json(format_tokenizer_json(model), "again") == model) << name;
  }
}

// Normalization makes this one longer than a file may have it.
TEST(TokenizerJson, AddedTokensMayGrow) {
  Json file = golden("neox.json");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "\u0958";
  file["added_tokens"].push_back({{"id", 723}, {"content", text}, {"normalized", true}});
  std::vector<int32_t> ids;
  ByteLevelBpe(parse(file)).encode("a" + text, ids);
  EXPECT_EQ(ids.back(), 723);
}

TEST(TokenizerJson, ComponentsSayWhatIsDoneWithText) {
  BpeModel llama3 = parse(golden("llama3.json"));
  EXPECT_EQ(llama3.pattern, PiecePattern::kLlama3);
  EXPECT_TRUE(llama3.whole_pieces);
  EXPECT_FALSE(llama3.nfc);
  EXPECT_EQ(llama3.tokens.at(static_cast<size_t>(llama3.document_prefix.at(0))),
            "<|begin_of_text|>");
  BpeModel neox = parse(golden("neox.json"));
  EXPECT_EQ(neox.pattern, PiecePattern::kGpt2);
  EXPECT_TRUE(neox.nfc);
  EXPECT_EQ(neox.document_prefix.size(), 0u);
  EXPECT_EQ(neox.added.size(), 2u + 23u);
  Json same = golden("llama3.json");
  Json& split = same["pre_tokenizer"]["pretokenizers"][0];
  split["behavior"] = "Removed";
  split["invert"] = true;
  EXPECT_TRUE(parse(same) == llama3);
}

TEST(TokenizerJson, MergesAreStringsOrPairs) {
  Json strings = golden(), pairs = golden();
  for (Json* file : {&strings, &pairs}) {
    for (Json& merge : file->at("model").at("merges")) {
      std::string left, right;
      if (merge.is_array()) {
        left = merge[0], right = merge[1];
      } else {
        auto text = merge.get<std::string>();
        left = text.substr(0, text.find(' ')), right = text.substr(text.find(' ') + 1);
      }
      merge = file == &strings ? Json(left + " " + right) : Json::array({left, right});
    }
  }
  EXPECT_TRUE(parse(strings) == parse(pairs));
}

TEST(TokenizerJson, AddedTokensMayLieOutsideTheVocabulary) {
  Json file = golden();
  file["added_tokens"].push_back({{"id", 700}, {"content", "<|a b|>"}, {"special", true}});
  BpeModel model = parse(file);
  EXPECT_EQ(model.tokens.at(700), "<|a b|>");
  EXPECT_EQ(model.added.at(1).id, 700);
  EXPECT_TRUE(parse_byte_level_json(format_tokenizer_json(model), "again") == model);
}

TEST(TokenizerJson, TruncationAndPaddingDoNotMatter) {
  Json file = golden();
  file["truncation"] = {{"max_length", 512}};
  file["padding"] = {{"strategy", "BatchLongest"}};
  file["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}};
  file["model"].erase("type");  // as in the oldest files
  EXPECT_TRUE(parse(file) == parse(golden()));
}

TEST(TokenizerJson, OtherComponentsAreRefusedByName) {
  expect_error("WordPiece", [](Json& file) { file["model"]["type"] = "WordPiece"; });
  expect_error("Unigram", [](Json& file) { file["model"] = {{"type", "Unigram"}}; });
  expect_error("without a type", [](Json& file) { file["model"] = Json::object(); });
  expect_error("no model", [](Json& file) { file.erase("model"); });
  expect_error("normalizer NFKC", [](Json& file) { file["normalizer"] = {{"type", "NFKC"}}; });
  expect_error("normalizer Lowercase", [](Json& file) {
    file["normalizer"] = {{"type", "Sequence"},
                          {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
  });
  expect_error("pre_tokenizer Split", [](Json& file) { file["pre_tokenizer"]["type"] = "Split"; });
  expect_error("pre_tokenizer null", [](Json& file) { file.erase("pre_tokenizer"); });
  expect_error("TemplateProcessing", [](Json& file) {
    file["post_processor"] = {{"type", "TemplateProcessing"}};
  });
  expect_error("decoder WordPiece", [](Json& file) { file["decoder"]["type"] = "WordPiece"; });
  expect_error("decoder without a type", [](Json& file) { file["decoder"] = 7; });
}

TEST(TokenizerJson, OtherOptionsAreRefusedByName) {
  expect_error("add_prefix_space",
               [](Json& file) { file["pre_tokenizer"]["add_prefix_space"] = true; });
  expect_error("add_prefix_space",
               [](Json& file) { file["pre_tokenizer"].erase("add_prefix_space"); });
  expect_error("use_regex", [](Json& file) { file["pre_tokenizer"]["use_regex"] = false; });
  expect_error("dropout", [](Json& file) { file["model"]["dropout"] = 0.1; });
  expect_error("byte_fallback", [](Json& file) { file["model"]["byte_fallback"] = true; });
  expect_error("end_of_word_suffix",
               [](Json& file) { file["model"]["end_of_word_suffix"] = "</w>"; });
  expect_error("continuing_subword_prefix",
               [](Json& file) { file["model"]["continuing_subword_prefix"] = "##"; });
}

TEST(TokenizerJson, OtherSplitsAreRefused) {
  auto expect = [](const char* cause, const std::function<void(Json&)>& change) {
    expect_error(
        cause, [&](Json& file) { change(file["pre_tokenizer"]["pretokenizers"]); }, "llama3.json");
  };
  expect("its pattern is not that", [](Json& steps) { steps[0]["pattern"]["Regex"] = "\\w+"; });
  expect("its pattern is not that", [](Json& steps) { steps[0]["pattern"] = {{"String", " "}}; });
  expect("behavior", [](Json& steps) { steps[0]["behavior"] = "MergedWithNext"; });
  expect("behavior", [](Json& steps) { steps[0]["invert"] = true; });
  expect("use_regex", [](Json& steps) { steps[1]["use_regex"] = true; });
  expect("pre_tokenizer Digits", [](Json& steps) { steps[1] = {{"type", "Digits"}}; });
  expect("pre_tokenizer Digits", [](Json& steps) { steps.push_back({{"type", "Digits"}}); });
  expect("pre_tokenizer Digits", [](Json& steps) { steps[0] = {{"type", "Digits"}}; });
  expect("no array", [](Json& steps) { steps = 3; });
  expect("option limit", [](Json& steps) { steps[0]["limit"] = 3; });
}

TEST(TokenizerJson, TemplatesPutSpecialTokensBeforeAndEndBehind) {
  Json file = golden("llama3.json");
  int bos = parse(file).document_prefix.at(0), end = parse(file).end_of_text;
  auto with = [&](Json single) {
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", single},
                              {"special_tokens",
                               {{"B", {{"ids", {bos}}}},
                                {"E", {{"ids", {end}}}},
                                {"word", {{"ids", {300}}}},
                                {"none", {{"ids", Json::array()}}},
                                {"far", {{"ids", {100000}}}}}}};
    return file.dump();
  };
  Json text{{"Sequence", {{"id", "A"}}}};
  auto token = [](const char* name) { return Json{{"SpecialToken", {{"id", name}}}}; };
  auto prefix = [&](Json single) {
    return parse_byte_level_json(with(single), "template").document_prefix;
  };
  EXPECT_EQ(prefix(Json::array({text})), std::vector<int32_t>{});
  EXPECT_EQ(prefix(Json::array({token("B"), token("E"), text})), (std::vector<int32_t>{bos, end}));
  EXPECT_EQ(prefix(Json::array({token("B"), text, token("E")})), std::vector<int32_t>{bos});
  auto expect = [&](const char* cause, Json single) {
    std::string message = error_of(with(single));
    expect_contains(message, cause);
  };
  expect("behind a text", Json::array({text, token("B")}));
  expect("is not a special added token", Json::array({token("word"), text}));
  expect("is not a special added token", Json::array({token("far"), text}));
  expect("'none' has no ids", Json::array({token("none"), text}));
  expect("'nobody' has no ids", Json::array({token("nobody"), text}));
  expect("one sequence", Json::array({text, text}));
  expect("one sequence", Json::array({token("B")}));
}

TEST(TokenizerJson, IdsWithoutATokenAreKept) {
  Json file = golden();
  auto id = file["model"]["vocab"]["a"].get<int32_t>();
  file["model"]["vocab"]["a"] = 800;
  BpeModel model = parse(file);
  EXPECT_EQ(model.tokens.size(), 801u);
  EXPECT_EQ(model.tokens[static_cast<size_t>(id)], "");
  EXPECT_EQ(model.tokens[800], "a");
  EXPECT_TRUE(parse_byte_level_json(format_tokenizer_json(model), "again") == model);
}

// Of two pairs that make one token the one whose left part is older goes first, wherever it is.
TEST(TokenizerJson, MergesAreWrittenInTheOrderInWhichTheyApply) {
  BpeModel model = parse(golden());
  auto id = [&](const char* token) {
    return static_cast<int32_t>(std::ranges::find(model.tokens, token) - model.tokens.begin());
  };
  int32_t t = id("t"), h = id("h"), e = id("e"), th = id("th"), he = id("he"), the = id("the");
  model.merges = {{th, e, the}, {h, e, he}, {t, he, the}, {t, h, th}};
  model.rank_is_result = true;
  std::vector<BpeModel::Merge> ranked = model.merges;
  std::ranges::sort(ranked, {}, [](const auto& m) { return std::pair(m.result, m.left); });
  BpeModel read = parse_byte_level_json(format_tokenizer_json(model), "again");
  EXPECT_TRUE(read.merges == ranked);
  EXPECT_FALSE(read.rank_is_result);
}

TEST(TokenizerJson, BrokenVocabulariesAreRefused) {
  expect_error("no vocab", [](Json& file) { file["model"]["vocab"] = 3; });
  expect_error("no valid id", [](Json& file) { file["model"]["vocab"]["a"] = -1; });
  expect_error("no valid id", [](Json& file) { file["model"]["vocab"]["a"] = "x"; });
  expect_error("no valid id", [](Json& file) { file["model"]["vocab"]["a"] = 1.5; });
  expect_error("no valid id", [](Json& file) { file["model"]["vocab"]["a"] = 1ull << 63; });
  expect_error("ids are without a token", [](Json& file) { file["model"]["vocab"]["a"] = 9000; });
  expect_error("two tokens have id", [](Json& file) { file["model"]["vocab"]["a"] = 5; });
  expect_error("byte-level alphabet", [](Json& file) { file["model"]["vocab"]["\u2581"] = 700; });
  expect_error("is empty", [](Json& file) { file["model"]["vocab"][""] = 700; });
  expect_error("byte 97 ('a') has no token", [](Json& file) {
    Json& vocab = file["model"]["vocab"];
    vocab["aaaaaaaa"] = vocab["a"];
    vocab.erase("a");
  });
}

TEST(TokenizerJson, BrokenAddedTokensAreRefused) {
  Json token{{"id", 700}, {"content", "<|x|>"}, {"special", true}};
  auto add = [&](const char* key, Json value) {
    return [=](Json& file) {
      Json changed = token;
      changed[key] = value;
      file["added_tokens"].push_back(changed);
    };
  };
  expect_error("no content", add("content", nullptr));
  expect_error("no valid id", add("id", "7"));
  expect_error("two tokens have id", add("id", 50));
  expect_error("two ids", add("content", "a"));
  expect_error("is empty", add("content", ""));
  expect_error("more than 1024 bytes", add("content", std::string(1025, 'x')));
  expect_error("together more than", [](Json& file) {
    for (int i = 0; i < 5000; ++i) {
      file["added_tokens"].push_back(
          {{"id", 700 + i}, {"content", cat(std::string(1000, 'x'), i)}});
    }
  });
  expect_error("is there twice", [&](Json& file) {
    file["added_tokens"].push_back(token);
    file["added_tokens"].push_back(token);
  });
  expect_error("byte 33 ('!') has no token", [](Json& file) {
    file["added_tokens"].push_back({{"id", 1}, {"content", "!"}, {"special", true}});
  });
  expect_error("not an array", [](Json& file) { file["added_tokens"] = "x"; });
  expect_error("no special added token <|endoftext|>",
               [](Json& file) { file["added_tokens"].clear(); });
}

TEST(TokenizerJson, BrokenMergesAreRefused) {
  auto add = [](Json merge) {
    return [=](Json& file) { file["model"]["merges"].push_back(merge); };
  };
  expect_error("no merges", [](Json& file) { file["model"]["merges"] = nullptr; });
  expect_error("merge 443 is not a pair", add(7));
  expect_error("merge 443 is not a pair", add("ab"));
  expect_error("merge 443 is not a pair", add({"a", "b", "c"}));
  expect_error("'nowhere' is not an ordinary token", add("a nowhere"));
  expect_error("'qq' is not an ordinary token", add("q q"));
  expect_error("'<|endoftext|>' is not an ordinary token", add("<|endoftext|> a"));
  expect_error("there twice",
               [](Json& file) { file["model"]["merges"].push_back(file["model"]["merges"][0]); });
}

TEST(TokenizerJson, HostileTextIsRefused) {
  expect_contains(error_of(""), "not valid JSON");
  expect_contains(error_of("[1, 2]"), "not an object");
  expect_contains(error_of("{\"model\": "), "not valid JSON");
  expect_contains(error_of("{\"a\": \"\xFF\"}"), "not valid JSON");
  expect_contains(error_of(std::string(1 << 20, '[')), "nested");
  std::string many = "[0";
  for (size_t i = 0; i < (size_t{9} << 20); ++i) many += ",0";
  expect_contains(error_of(many + "]"), "too many");
  std::string long_token = "{\"model\": {\"type\": \"" + std::string(1 << 16, 'x') + "\"}}";
  EXPECT_LT(error_of(long_token).size(), 600u);  // what is quoted is cut short
}

TEST(TokenizerJson, UnreadableFilesAreNamed) {
  expect_contains(user_error([] { load_tokenizer_json("/no/such/tokenizer.json"); }),
                  "/no/such/tokenizer.json");
  EXPECT_THROW(write_tokenizer_json("/no/such/tokenizer.json", parse(golden())), UserError);
}

}  // namespace
}  // namespace tessera
