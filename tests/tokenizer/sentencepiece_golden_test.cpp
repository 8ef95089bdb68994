// Ids against SentencePiece and Hugging Face `tokenizers`; tools/goldens/sentencepiece_goldens.py
// makes the files and says what the models and their variants are.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kGoldens =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/tokenizer/goldens/sentencepiece";

std::string bytes_of_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string sample_text(const Json& sample) {
  std::string once = bytes_of_hex(sample.at("hex").get<std::string>()), text;
  for (int i = 0; i < sample.at("repeat").get<int>(); ++i) text += once;
  return text;
}

void expect_ids(const std::vector<int32_t>& ids, const Json& golden) {
  if (golden.contains("ids")) {
    EXPECT_EQ(ids, golden.at("ids").get<std::vector<int32_t>>());
    return;
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) sum += (i + 1) * static_cast<uint64_t>(ids[i]);
  EXPECT_EQ(ids.size(), golden.at("count").get<size_t>());
  EXPECT_EQ(cat(sum), golden.at("sum").get<std::string>());
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

SentencePieceModel read_model(const std::string& name) {
  return read_sentencepiece(kGoldens / (name + ".model"));
}

void expect_sentencepiece(SentencePieceModel model, const char* key) {
  SentencePieceTokenizer tokenizer(std::move(model), key);
  Json samples = Json::parse(read_file(kGoldens / "ids.json"));
  ASSERT_GT(samples.size(), 60u);
  for (const Json& sample : samples) {
    SCOPED_TRACE(cat(key, ": ", sample.at("name").get<std::string>()));
    std::string text = sample_text(sample);
    std::vector<int32_t> ids = ids_of(tokenizer, text);
    const Json& golden = sample.at(key);
    expect_ids(ids, golden);
    if (golden.contains("decoded")) {
      EXPECT_EQ(tokenizer.decode(ids), bytes_of_hex(golden.at("decoded")));
    } else if (text.size() <= 200) {
      EXPECT_EQ(tokenizer.decode(ids), text);
    }
  }
}

TEST(SentencePieceGoldens, Bpe) { expect_sentencepiece(read_model("bpe"), "bpe"); }

TEST(SentencePieceGoldens, BpeWithRulesAndUserDefinedPieces) {
  expect_sentencepiece(read_model("bpe_nfkc"), "bpe_nfkc");
}

TEST(SentencePieceGoldens, BpeWithUnusedPieces) {
  SentencePieceModel model = read_model("bpe");
  for (size_t id = 0; id < model.pieces.size(); id += 7) {
    SentencePieceModel::Piece& piece = model.pieces[id];
    bool one_character = code_point_at(piece.text, 0).size == piece.text.size();
    if (piece.kind != SentencePieceModel::Kind::kNormal || one_character) continue;
    piece.kind = SentencePieceModel::Kind::kUnused;
  }
  expect_sentencepiece(std::move(model), "bpe_unused");
}

TEST(SentencePieceGoldens, Unigram) { expect_sentencepiece(read_model("unigram"), "unigram"); }

TEST(SentencePieceGoldens, UnigramWithBytesAndUserDefinedPieces) {
  expect_sentencepiece(read_model("unigram_bytes"), "unigram_bytes");
}

Json llama_json() { return Json::parse(read_file(kGoldens / "llama.json")); }

SentencePieceTokenizer tokenizer_of(const Json& file) {
  return SentencePieceTokenizer(
      sentencepiece_model(parse_tokenizer_file(file.dump(), "llama.json"), ""), "llama.json");
}

Json with_metaspace(const char* scheme, bool split) {
  Json file = llama_json();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = file["decoder"] = {{"type", "Metaspace"},
                                             {"replacement", "\u2581"},
                                             {"prepend_scheme", scheme},
                                             {"split", split}};
  return file;
}

Json without_bytes(bool fuse_unknown) {
  Json file = llama_json();
  file["model"]["byte_fallback"] = false;
  file["model"]["fuse_unk"] = fuse_unknown;
  return file;
}

void expect_tokenizers(const Json& file, const char* key) {
  SentencePieceTokenizer tokenizer = tokenizer_of(file);
  Json samples = Json::parse(read_file(kGoldens / "ids.json"));
  for (const Json& sample : samples) {
    SCOPED_TRACE(cat(key, ": ", sample.at("name").get<std::string>()));
    const Json& golden = sample.at(key);
    if (golden.contains("ids") && golden.at("ids").is_null()) continue;
    expect_ids(ids_of(tokenizer, sample_text(sample)), golden);
  }
}

TEST(SentencePieceGoldens, LlamaJson) { expect_tokenizers(llama_json(), "llama"); }

TEST(SentencePieceGoldens, MetaspaceFirst) {
  expect_tokenizers(with_metaspace("first", false), "llama_first");
}

TEST(SentencePieceGoldens, MetaspaceThatSplitsWords) {
  expect_tokenizers(with_metaspace("always", true), "llama_words");
}

TEST(SentencePieceGoldens, MetaspaceWithoutPrefix) {
  expect_tokenizers(with_metaspace("never", false), "llama_never");
}

TEST(SentencePieceGoldens, UnknownTokensFused) {
  expect_tokenizers(without_bytes(true), "llama_fused");
}

TEST(SentencePieceGoldens, UnknownTokensOneByOne) {
  expect_tokenizers(without_bytes(false), "llama_unknown");
}

// By name, as the generator has them.
std::map<std::string, Json> variants() {
  return {{"llama", llama_json()},
          {"llama_first", with_metaspace("first", false)},
          {"llama_words", with_metaspace("always", true)},
          {"llama_never", with_metaspace("never", false)},
          {"llama_fused", without_bytes(true)},
          {"llama_unknown", without_bytes(false)}};
}

TEST(SentencePieceGoldens, PromptsWithAddedTokens) {
  const Json added = {
      {{"id", 640}, {"content", "<x>"}, {"normalized", true}},
      {{"id", 641}, {"content", "<mask>"}, {"lstrip", true}, {"rstrip", true}},
      {{"id", 642}, {"content", "rank"}, {"single_word", true}, {"normalized", true}}};
  std::map<std::string, Json> files = variants();
  for (auto& [name, file] : files) {
    file["added_tokens"].insert(file["added_tokens"].end(), added.begin(), added.end());
  }
  for (const Json& row : Json::parse(read_file(kGoldens / "prompts.json"))) {
    SCOPED_TRACE(row.dump());
    std::vector<int32_t> ids;
    tokenizer_of(files.at(row.at("variant"))).encode_prompt(row.at("text").get<std::string>(), ids);
    EXPECT_EQ(ids, row.at("prompt").get<std::vector<int32_t>>());
  }
}

// tools/goldens/added_token_goldens.py
TEST(SentencePieceGoldens, AddedTokensOfEveryKind) {
  std::map<std::string, Json> files = variants();
  size_t prompts = 0;
  for (const Json& row : Json::parse(read_file(kGoldens / "added.json"))) {
    SCOPED_TRACE(row.dump().substr(0, 400));
    Json file = files.at(row.at("variant"));
    file["added_tokens"].insert(file["added_tokens"].end(), row["added"].begin(),
                                row["added"].end());
    SentencePieceTokenizer tokenizer = tokenizer_of(file);
    for (const Json& prompt : row.at("prompts")) {
      std::vector<int32_t> ids;
      tokenizer.encode_prompt(prompt[0].get<std::string>(), ids);
      EXPECT_EQ(ids, prompt[1].get<std::vector<int32_t>>()) << prompt[0];
      ++prompts;
    }
  }
  EXPECT_GT(prompts, 900u);
}

TEST(SentencePieceGoldens, AddedTokensThatAreEqualOnceNormalizedAreRefused) {
  Json file = llama_json();
  file["added_tokens"].push_back({{"id", 640}, {"content", "a b"}, {"normalized", true}});
  file["added_tokens"].push_back({{"id", 641}, {"content", "a\u2581b"}, {"normalized", true}});
  expect_contains(user_error([&] { tokenizer_of(file); }),
                  "added tokens 'a b' and 'a\u2581b' are the same once normalized");
}

// A tokenizer.json with byte fallback keeps all that its form does not change.
TEST(SentencePieceGoldens, JsonGivesEveryTextBack) {
  SentencePieceTokenizer tokenizer = tokenizer_of(llama_json());
  for (const Json& sample : Json::parse(read_file(kGoldens / "ids.json"))) {
    std::string text = sample_text(sample);
    EXPECT_TRUE(tokenizer.decode(ids_of(tokenizer, text)) == with_spaces(text))
        << sample.at("name");
  }
}

}  // namespace
}  // namespace tessera
