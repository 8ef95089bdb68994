// SentencePiece's models as tokenizer.json. The goldens are what
// tools/goldens/added_token_goldens.py and tools/oracle/hub_round_trip.py held against Hugging
// Face's library.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/base64.h"
#include "base/file.h"
#include "tests/base/error_expectation.h"
#include "tokenizer/code_points.h"
#include "tokenizer/normalizer_steps.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Kind = SentencePieceModel::Kind;

const std::filesystem::path kGoldens =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/tokenizer/goldens/sentencepiece";

SentencePieceModel read_model(const std::string& name) {
  return read_sentencepiece(kGoldens / (name + ".model"));
}

// Each of these files gave SentencePiece's ids, for every sample of ids.json and thousands of
// random texts, when the golden was made.
TEST(SentencePieceExport, IsTheFileThatWasHeldAgainstHuggingFace) {
  for (const char* name : {"bpe", "bpe_nfkc", "unigram", "unigram_bytes"}) {
    Json golden = Json::parse(read_file(kGoldens / "exported" / cat(name, ".json")));
    EXPECT_TRUE(Json::parse(format_tokenizer_json(read_model(name), name)) == golden) << name;
  }
}

// Its ids are those of the .model, which tessera's reader of such files finds out by itself.
TEST(SentencePieceExport, OfALlamaReadsBack) {
  SentencePieceModel model = read_model("bpe");
  SentencePieceTokenizer own(model, "bpe");
  TokenizerFile file = parse_tokenizer_file(format_tokenizer_json(model, "bpe"), "bpe.json");
  SentencePieceTokenizer read(sentencepiece_model(file, ""), "bpe.json");
  for (const Json& sample : Json::parse(read_file(kGoldens / "ids.json"))) {
    const Json& golden = sample.at("llama");
    if (golden.contains("ids") && golden.at("ids").is_null()) continue;  // not UTF-8
    if (sample.at("repeat").get<int>() > 100) continue;
    std::string text;
    for (size_t i = 0; i < sample.at("hex").get<std::string>().size(); i += 2) {
      text += static_cast<char>(
          std::stoi(sample.at("hex").get<std::string>().substr(i, 2), nullptr, 16));
    }
    std::vector<int32_t> ids, again;
    own.encode_prompt(text, ids);
    read.encode_prompt(text, again);
    EXPECT_EQ(ids, again) << sample.at("name");
  }
}

TEST(SentencePieceExport, WhatHuggingFaceCannotSayIsRefused) {
  auto refused = [](const SentencePieceModel& model, const char* why) {
    std::string message = user_error([&] { format_tokenizer_json(model, "own.model"); });
    expect_contains(message, "tokenizer 'own.model' cannot be written for Hugging Face: ");
    expect_contains(message, why);
  };
  SentencePieceModel model = read_model("bpe");
  model.pieces[300].kind = Kind::kUnused;
  refused(model, "its piece 300 is unused");
  model = read_model("bpe");
  model.pieces[300].score = model.pieces[301].score;
  refused(model, "have the same score");
  model = read_model("bpe_nfkc");
  for (SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.text == "<sep>") piece.text = "\uFB01";  // a ligature that NFKC takes apart
  }
  refused(model, "changes the user-defined piece");
}

TEST(SentencePieceExport, WithoutRulesSpacesAreAllThatChanges) {
  using Step = NormalizerStep;
  EXPECT_EQ(normalizer_steps(read_model("bpe"), "bpe"),
            (std::vector<Step>{{Step::Kind::kPrepend, "", "\u2581"},
                               {Step::Kind::kReplace, " ", "\u2581"}}));
}

TEST(CodePoints, RegularExpressionsTakeTheLongest) {
  EXPECT_EQ(regex_of({}), "");
  EXPECT_EQ(regex_of({"a", "ab"}), "(?:\\x{61}(?:\\x{62})?)");
  EXPECT_EQ(regex_of({"ax", "b", "bx", "cx"}),
            "(?:[\\x{61}\\x{63}](?:\\x{78})|\\x{62}(?:\\x{78})?)");
  EXPECT_EQ(regex_of({"\u00e9", "\u00ea", "\u00eb"}), "(?:[\\x{E9}-\\x{EB}])");
}

TEST(Base64, BothWays) {
  for (auto [bytes, text] : {std::pair("", ""), std::pair("f", "Zg=="), std::pair("fo", "Zm8="),
                             std::pair("foo", "Zm9v"), std::pair("\xff\xfe\xfd\xfc", "//79/A==")}) {
    EXPECT_EQ(to_base64(bytes), text);
    if (*text) {
      EXPECT_EQ(from_base64(text), bytes);
    }
  }
}

}  // namespace
}  // namespace tessera
