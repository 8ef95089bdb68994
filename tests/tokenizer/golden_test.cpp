// Ids against Hugging Face `tokenizers` and `tiktoken`; tools/goldens/tokenizer_goldens.py makes
// the files.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kGoldens =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/tokenizer/goldens";
const std::filesystem::path kGpt2 =
    std::filesystem::path(TESSERA_SOURCE_DIR).parent_path() / "shared/data/tokenizers/gpt2";

std::string sample_text(const Json& sample) {
  auto digits = sample.at("hex").get<std::string>();
  std::string once, text;
  for (size_t i = 0; i < digits.size(); i += 2) {
    once += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  for (int i = 0; i < sample.at("repeat").get<int>(); ++i) text += once;
  return text;
}

void expect_goldens(
    const Tokenizer& tokenizer, const char* key,
    const std::function<std::string(std::string)>& normalized = [](std::string t) { return t; }) {
  Json samples = Json::parse(read_file(kGoldens / "ids.json"));
  ASSERT_GT(samples.size(), 50u);
  for (const Json& sample : samples) {
    SCOPED_TRACE(sample.at("name").get<std::string>());
    std::string text = sample_text(sample);
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    EXPECT_TRUE(tokenizer.decode(ids) == normalized(text));
    const Json& golden = sample.at(key);
    if (golden.contains("ids")) {
      EXPECT_EQ(ids, golden.at("ids").get<std::vector<int32_t>>());
      continue;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < ids.size(); ++i) sum += (i + 1) * static_cast<uint64_t>(ids[i]);
    EXPECT_EQ(ids.size(), golden.at("count").get<size_t>());
    EXPECT_EQ(cat(sum), golden.at("sum").get<std::string>());
  }
}

Json golden_json(const std::string& name) { return Json::parse(read_file(kGoldens / name)); }

TEST(Goldens, IdsOfATrainedTokenizer) {
  expect_goldens(*load_tokenizer(kGoldens / "tokenizer.json"), "trained");
}

TEST(Goldens, IdsOfLlama3) {
  auto tokenizer = load_tokenizer(kGoldens / "llama3.json");
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->end_of_text()), "<|end_of_text|>");
  ASSERT_EQ(tokenizer->document_prefix().size(), 1u);
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->document_prefix()[0]), "<|begin_of_text|>");
  expect_goldens(*tokenizer, "llama3");
}

TEST(Goldens, IdsOfQwen2) {
  Json file = golden_json("llama3.json");
  auto& regex = file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  auto text = regex.get<std::string>();
  regex = text.replace(text.find("{1,3}"), 5, "");
  expect_goldens(ByteLevelBpe(parse_byte_level_json(file.dump(), "qwen2")), "qwen2");
}

TEST(Goldens, IdsOfNeox) {
  auto tokenizer = load_tokenizer(kGoldens / "neox.json");
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  expect_goldens(*tokenizer, "neox", [](const std::string& text) {
    std::string buffer;
    return std::string(to_nfc(text, buffer));
  });
}

TEST(Goldens, IdsOfTiktoken) {
  BpeModel model = parse_tiktoken(read_file(kGoldens / "tiktoken.model"), "small", true);
  expect_goldens(ByteLevelBpe(model), "tiktoken");
  std::string as_json = format_tokenizer_json(model);
  expect_goldens(ByteLevelBpe(parse_byte_level_json(as_json, "as json")), "tiktoken");
}

TEST(Goldens, AddedTokensOfAllFlags) {
  for (const Json& group : golden_json("added.json")) {
    Json file = golden_json(group.at("base").get<std::string>() + ".json");
    for (const Json& token : group.at("added")) file["added_tokens"].push_back(token);
    ByteLevelBpe tokenizer(parse_byte_level_json(file.dump(), "added"));
    for (const Json& one : group.at("cases")) {
      auto text = one.at("text").get<std::string>();
      SCOPED_TRACE(cat(group.at("base").get<std::string>(), ": ", text));
      std::vector<int32_t> ordinary, prompt;
      tokenizer.encode(text, ordinary);
      tokenizer.encode_prompt(text, prompt);
      EXPECT_EQ(ordinary, one.at("ordinary").get<std::vector<int32_t>>());
      EXPECT_EQ(prompt, one.at("prompt").get<std::vector<int32_t>>());
    }
  }
}

TEST(Goldens, TrainingFindsTheSameMerges) {
  std::string text = read_file(kGoldens / "corpus.txt");
  BpeModel golden = parse_byte_level_json(read_file(kGoldens / "tokenizer.json"), "golden");
  BpeTrainerOptions options;
  options.vocab_size = static_cast<int32_t>(golden.tokens.size());
  BpeModel model = train_bpe(
      [&](std::string& document) {
        document = std::exchange(text, {});
        return !document.empty();
      },
      options);
  EXPECT_EQ(model.tokens, golden.tokens);
  EXPECT_TRUE(model == golden);
}

TEST(Goldens, IdsOfGpt2) {
  if (!std::filesystem::exists(kGpt2 / "encoder.json")) {
    GTEST_SKIP() << "needs GPT-2's encoder.json and vocab.bpe in " << kGpt2;
  }
  auto tokenizer = load_tokenizer(kGpt2);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  expect_goldens(*tokenizer, "gpt2");
}

}  // namespace
}  // namespace tessera
