// Which file is read for a name, and what is said when there is none.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kGoldens = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens";

class LoadTokenizer : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) { scratch_.write(name, content); }
  void write_pair(const std::string& vocabulary, const std::string& merges) {
    Json model = Json::parse(read_file(kGoldens / "tokenizer.json"))["model"];
    std::string lines;
    for (const Json& merge : model["merges"]) {
      lines += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
    }
    write(vocabulary, model["vocab"].dump());
    write(merges, lines);
  }
  void expect_error(const std::string& name, const char* cause) {
    expect_contains(user_error([&] { load_tokenizer(name); }), cause);
  }

  ScratchDirectory scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
  const uint64_t golden_ = load_tokenizer(kGoldens / "tokenizer.json")->fingerprint();
};

TEST_F(LoadTokenizer, SaysWhatIsSupported) {
  for (const char* name : {"", "gpt2", "/no/such/tokenizer.json", TESSERA_SOURCE_DIR "/src"}) {
    expect_error(name, name);
    expect_error(name, "tokenizer.json");
    expect_error(name, "\"byte\"");
  }
  expect_error(TESSERA_SOURCE_DIR "/CMakeLists.txt", "its kind is not supported");
  std::filesystem::create_symlink(folder_ / "loop", folder_ / "loop");
  expect_error(folder_ / "loop", "Too many levels of symbolic links");
}

TEST_F(LoadTokenizer, TakesEitherFileOfAPair) {
  for (auto [vocabulary, merges] :
       {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    write_pair(vocabulary, merges);
    for (const auto& path : {folder_, folder_ / vocabulary, folder_ / merges}) {
      EXPECT_EQ(load_tokenizer(path)->fingerprint(), golden_) << path;
    }
    std::filesystem::remove(folder_ / merges);
    expect_error(folder_, merges);
    std::filesystem::remove(folder_ / vocabulary);
  }
}

TEST_F(LoadTokenizer, ATokenizerJsonComesFirst) {
  write_pair("vocab.json", "merges.txt");
  write("tokenizer.json", read_file(kGoldens / "llama3.json"));
  EXPECT_EQ(load_tokenizer(folder_)->document_prefix().size(), 1u);
}

TEST_F(LoadTokenizer, TheFirstByteOfAModelDecides) {
  write("tokenizer.model", "\n\x09\n\x05<unk>");
  expect_error(folder_, "no SentencePiece model");
  write("tokenizer.model", read_file(kGoldens / "sentencepiece/bpe.model"));
  expect_contains(load_tokenizer(folder_)->description(), "SentencePiece BPE");
  write("tokenizer.model", read_file(kGoldens / "tiktoken.model"));
  expect_error(folder_, "699 ranks");
  expect_error(folder_ / "tokenizer.model", "699 ranks");
  std::filesystem::remove(folder_ / "tokenizer.model");
  write("a.tiktoken", "!");
  expect_error(folder_, "line 1 is not a token");
  write("b.tiktoken", "!");
  expect_error(folder_, "several files of tokenizers, a.tiktoken and b.tiktoken");
}

TEST_F(LoadTokenizer, ADirectoryMayHoldAModelOfAnyName) {
  std::string model = read_file(kGoldens / "sentencepiece/unigram.model");
  write("spiece.model", model);
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(),
            load_tokenizer(kGoldens / "sentencepiece/unigram.model")->fingerprint());
  write("other.model", model);
  expect_error(folder_, "several files of tokenizers, other.model and spiece.model");
}

// An export holds both: the file that it was made from is the tokenizer.
TEST_F(LoadTokenizer, ATokenizerJsonWrittenForTheModelBesideIt) {
  for (const char* name : {"bpe", "bpe_nfkc", "unigram", "unigram_bytes"}) {
    SCOPED_TRACE(name);
    std::filesystem::path path = kGoldens / "sentencepiece" / (std::string(name) + ".model");
    write("tokenizer.model", read_file(path));
    write("tokenizer.json", format_tokenizer_json(read_sentencepiece(path), name));
    EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), load_tokenizer(path)->fingerprint());
  }
  write("tokenizer.json", read_file(kGoldens / "sentencepiece/llama.json"));
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(),
            load_tokenizer(kGoldens / "sentencepiece/llama.json")->fingerprint());
}

// The same pieces from both files; what they do with bytes that are not UTF-8 differs.
TEST_F(LoadTokenizer, SentencePieceComesInTwoForms) {
  write("tokenizer.json", read_file(kGoldens / "sentencepiece/llama.json"));
  auto json = load_tokenizer(folder_);
  auto model = load_tokenizer(kGoldens / "sentencepiece/bpe.model");
  for (const Tokenizer* tokenizer : {json.get(), model.get()}) {
    EXPECT_EQ(tokenizer->vocab_size(), 640);
    EXPECT_EQ(tokenizer->end_of_text(), 2);
    EXPECT_EQ(tokenizer->document_prefix().size(), 1u);
    EXPECT_EQ(tokenizer->token_bytes(1), "<s>");
    std::vector<int32_t> ids;
    tokenizer->encode_prompt("the engine </s> the reader", ids);
    EXPECT_EQ(tokenizer->decode(ids), "<s>the engine </s>  the reader");
  }
  EXPECT_NE(json->fingerprint(), model->fingerprint());
}

TEST_F(LoadTokenizer, TheConfigurationNamesTheEndOfText) {
  write("tokenizer.json", read_file(kGoldens / "llama3.json"));
  auto end = [&] {
    auto tokenizer = load_tokenizer(folder_);
    return std::string(tokenizer->token_bytes(tokenizer->end_of_text()));
  };
  EXPECT_EQ(end(), "<|end_of_text|>");
  write("tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  EXPECT_EQ(end(), "<|eot_id|>");
  write("tokenizer_config.json", R"({"eos_token": {"content": "<|eot_id|>", "special": true}})");
  EXPECT_EQ(end(), "<|eot_id|>");
  write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(end(), "<|end_of_text|>");
  write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect_error(folder_, "no special added token </s>");
  write("tokenizer_config.json", R"({"eos_token": 3})");
  expect_error(folder_, "eos_token is not a name");
  write("tokenizer_config.json", "[");
  expect_error(folder_, "tokenizer_config.json': it is not valid JSON");
}

TEST_F(LoadTokenizer, PairsOfOtherClassesAreRefused) {
  write_pair("vocab.json", "merges.txt");
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), golden_);
  write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  expect_error(folder_, "Qwen2Tokenizer");
  std::filesystem::remove(folder_ / "tokenizer_config.json");
}

// Texts would get other ids than the tokens that stand beside the file.
TEST_F(LoadTokenizer, TokensThatOtherFilesAddAreRefused) {
  write_pair("vocab.json", "merges.txt");
  const auto pair = load_tokenizer(folder_);
  const std::string end = cat(R"({"<|endoftext|>": )", pair->end_of_text(), "}");
  write("added_tokens.json", end);
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), golden_);
  write("added_tokens.json", R"({"<|more|>": 9000})");
  expect_error(folder_, "added_tokens.json' adds tokens that it does not have, '<|more|>'");

  const std::string model = (folder_ / "of_a_model").string();
  const uint64_t as_it_is = load_tokenizer(kGoldens / "sentencepiece/bpe.model")->fingerprint();
  std::filesystem::create_directory(model);
  write("of_a_model/tokenizer.model", read_file(kGoldens / "sentencepiece/bpe.model"));
  // Those that it has, and the one that no text becomes.
  write("of_a_model/added_tokens.json", R"({"</s>": 2, "[PAD]": 640})");
  write("of_a_model/tokenizer_config.json",
        R"({"eos_token": "</s>", "pad_token": {"content": "[PAD]"}, "added_tokens_decoder":
            {"1": {"content": "<s>"}, "2": {"content": "</s>"}, "640": {"content": "[PAD]"}}})");
  EXPECT_EQ(load_tokenizer(model)->fingerprint(), as_it_is);
  write("of_a_model/added_tokens.json", R"({"</s>": 3})");
  expect_error(model, "added_tokens.json' adds tokens that it does not have, '</s>'");
  write("of_a_model/added_tokens.json", R"({"<|im_start|>": 640})");
  expect_error(model, "save_pretrained(DIR)");
  std::filesystem::remove(folder_ / "of_a_model/added_tokens.json");
  write("of_a_model/tokenizer_config.json",
        R"({"added_tokens_decoder": {"640": {"content": "<|im_end|>"}}})");
  expect_error(model, "tokenizer_config.json' adds tokens that it does not have, '<|im_end|>'");
  write("of_a_model/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  expect_error(model, "tokenizer_config.json' adds tokens that it does not have, '<|im_end|>'");
}

}  // namespace
}  // namespace tessera
