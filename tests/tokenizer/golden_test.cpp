// Ids against Hugging Face `tokenizers`; tools/goldens/tokenizer_goldens.py makes the files.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_level_bpe.h"
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

void expect_goldens(const Tokenizer& tokenizer, const char* key) {
  Json samples = Json::parse(read_file(kGoldens / "ids.json"));
  ASSERT_GT(samples.size(), 50u);
  for (const Json& sample : samples) {
    SCOPED_TRACE(sample.at("name").get<std::string>());
    std::string text = sample_text(sample);
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    EXPECT_TRUE(tokenizer.decode(ids) == text);
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

TEST(Goldens, IdsOfATrainedTokenizer) {
  expect_goldens(ByteLevelBpe(read_tokenizer_json(kGoldens / "tokenizer.json")), "trained");
}

TEST(Goldens, TrainingFindsTheSameMerges) {
  std::string text = read_file(kGoldens / "corpus.txt");
  BpeModel golden = read_tokenizer_json(kGoldens / "tokenizer.json");
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

// GPT-2's published pair, brought into the form of a tokenizer.json.
std::string gpt2_tokenizer_json() {
  Json merges = Json::array();
  std::string lines = read_file(kGpt2 / "vocab.bpe");
  for (std::string_view line : split(lines, '\n')) {
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(std::string(line));
  }
  Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  Json model{{"vocab", Json::parse(read_file(kGpt2 / "encoder.json"))}, {"merges", merges}};
  Json end{{"id", 50256}, {"content", "<|endoftext|>"}, {"special", true}};
  return Json{{"model", model},
              {"added_tokens", Json::array({end})},
              {"pre_tokenizer", byte_level},
              {"decoder", byte_level}}
      .dump();
}

TEST(Goldens, IdsOfGpt2) {
  if (!std::filesystem::exists(kGpt2 / "encoder.json")) {
    GTEST_SKIP() << "needs GPT-2's encoder.json and vocab.bpe in " << kGpt2;
  }
  ByteLevelBpe tokenizer(parse_tokenizer_json(gpt2_tokenizer_json(), "gpt2"));
  EXPECT_EQ(tokenizer.vocab_size(), 50257);
  EXPECT_EQ(tokenizer.end_of_text(), 50256);
  expect_goldens(tokenizer, "gpt2");
}

}  // namespace
}  // namespace tessera
