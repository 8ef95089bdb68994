#include "data/record_encoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/ignore_index.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/find_chat_template.h"
#include "data/special_names.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kTests = fs::path(TESSERA_SOURCE_DIR) / "tests";

Json read_json(const fs::path& path) { return Json::parse(read_file(path)); }

// Ids; those that are not learned in brackets.
std::string shown(const std::vector<int32_t>& ids, const std::vector<uint8_t>& learned) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i)
    text += learned.at(i) ? cat(" ", ids[i]) : cat(" [", ids[i], "]");
  return text;
}

std::string encoded(const RecordEncoder& encoder, const Record& record) {
  std::vector<int32_t> ids{1, 2};
  std::vector<uint8_t> learned{1};
  encoder.encode(record, ids, learned);
  EXPECT_EQ(ids.size(), learned.size());
  return shown(ids, learned);
}

// What tokens stand for, those that are learned in <>.
std::string marked(const RecordEncoder& encoder, const Tokenizer& tokenizer, const Record& record) {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;
  encoder.encode(record, ids, learned);
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i)
    text += cat(learned.at(i) ? "<" : "", tokenizer.token_bytes(ids[i]), learned[i] ? ">" : "");
  return text;
}

std::string problem(const RecordEncoder& encoder, const Record& record) {
  return user_error([&] { encoded(encoder, record); });
}

// A directory as a model on the hub has it.
void write_tokenizer(const fs::path& directory, const Json& golden) {
  const auto base = golden.at("tokenizer").get<std::string>();
  const fs::path goldens = kTests / "tokenizer/goldens";
  Json file;
  if (base == "sentencepiece/metaspace") {
    file = read_json(goldens / "sentencepiece/llama.json");
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Metaspace"},
                             {"replacement", "\u2581"},
                             {"prepend_scheme", "first"},
                             {"split", false}};
  } else {
    file = read_json(goldens / base);
  }
  for (const Json& token : golden.at("added")) file["added_tokens"].push_back(token);
  Json config{{"eos_token", golden.at("eos")}};
  if (golden.at("bos") != "") config["bos_token"] = golden.at("bos");
  const Json templates = read_json(kTests / "goldens/chat_templates.json");
  for (const Json& item : templates.at("templates"))
    if (item.at("name") == golden.at("template"))
      config["chat_template"] = item.at("chat_template");
  write_file_atomic(directory / "tokenizer.json", file.dump());
  write_file_atomic(directory / "tokenizer_config.json", config.dump());
}

TEST(RecordEncoder, ConversationsAndPromptsAreThoseOfTransformersAndTrl) {
  size_t reaching = 0, tokens = 0;
  const Json goldens = read_json(kTests / "goldens/records.json");
  for (const Json& golden : goldens.at("cases")) {
    SCOPED_TRACE(golden.at("tokenizer").get<std::string>() + " " +
                 golden.at("template").get<std::string>());
    ScratchDirectory directory;
    write_tokenizer(directory.path(), golden);
    const auto tokenizer = load_tokenizer(directory.path().string());
    const auto chat = find_chat_template(directory.path(), *tokenizer, "");
    ASSERT_TRUE(chat);
    const RecordEncoder encoder(*tokenizer, chat);
    for (const Json& item : golden.at("chats")) {
      Record record;
      for (const Json& message : item.at("messages"))
        record.messages.push_back({message.at("role"), message.at("content")});
      const auto ids = item.at("ids").get<std::vector<int32_t>>();
      auto mask = item.at("mask").get<std::vector<uint8_t>>();
      for (const Json& i : item.at("reaching")) {
        ++reaching;
        EXPECT_EQ(std::exchange(mask.at(i.get<size_t>()), 0), 1);
      }
      EXPECT_EQ(encoded(encoder, record), shown(ids, mask)) << item.at("messages");
      tokens += ids.size();
    }
    for (const Json& item : golden.at("prompts")) {
      Record record;
      record.spans = {{item.at("prompt"), false}, {item.at("completion"), true}};
      EXPECT_EQ(encoded(encoder, record), shown(item.at("ids"), item.at("mask")))
          << item.at("prompt") << item.at("completion");
    }
  }
  EXPECT_GT(tokens, 5000u);
  EXPECT_GE(reaching, 2u);
}

class RecordEncoderTest : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> bytes_ = load_tokenizer("byte");
  RecordEncoder plain_{*bytes_};
};

TEST_F(RecordEncoderTest, TextAndIds) {
  EXPECT_EQ(encoded(plain_, {.text = "ab"}), " 97 98 256");
  EXPECT_EQ(encoded(plain_, {}), "");
  EXPECT_EQ(encoded(plain_, {.ids = {5, 256, 0}}), " 5 256 0");
  EXPECT_EQ(encoded(plain_, {.ids = {5, 6, 7}, .labels = {-100, 6, -100}}), " [5] 6 [7]");
  expect_contains(problem(plain_, {.ids = {5, 257}}),
                  "id 1 is 257, which the tokenizer lacks (its ids are 0 to 256)");
  expect_contains(problem(plain_, {.ids = {-1}}), "id 0 is -1");
  expect_contains(problem(plain_, {.ids = {5, 6}, .labels = {5}}), "2 ids and 1 labels");
  expect_contains(problem(plain_, {.ids = {5, 6}, .labels = {6, 5}}),
                  "labels[0] is 6 where input_ids[0] is 5");
  const auto llama = load_tokenizer((kTests / "tokenizer/goldens/llama3.json").string());
  EXPECT_EQ(marked(RecordEncoder(*llama), *llama, {.text = "a<|end_of_text|>"}),
            "<<|begin_of_text|>><a><<><|><end><_><o><f><_t><ex><t><|><>><<|end_of_text|>>");
}

TEST_F(RecordEncoderTest, PromptsAndCompletions) {
  EXPECT_EQ(encoded(plain_, {.spans = {{"a", false}, {"bc", true}}}), " [97] 98 99 256");
  EXPECT_EQ(encoded(plain_, {.spans = {{"a", true}, {"b", false}, {"", true}, {"c", true}}}),
            " 97 [98] 99 256");
  EXPECT_EQ(encoded(plain_, {.spans = {{"a", true}, {"b", false}}}), " 97 [98] [256]");
  EXPECT_EQ(encoded(plain_, {.spans = {{"", false}, {"", true}}}), " 256");
}

TEST_F(RecordEncoderTest, NamesOfSpecialTokensInMessagesAreText) {
  const std::string eos(kEndOfTextName);
  const RecordEncoder encoder(*bytes_, ChatTemplate::named("plain", "", eos));
  const Record record{.messages = {{"user", eos}, {"assistant", eos}}};
  std::vector<int32_t> text, ids;
  std::vector<uint8_t> learned;
  bytes_->encode(eos, text);
  text.push_back(256);
  encoder.encode(record, ids, learned);
  std::vector<uint8_t> expected(text.size(), 0);
  expected.resize(2 * text.size(), 1);
  text.insert(text.end(), text.begin(), text.end());
  EXPECT_EQ(ids, text);
  EXPECT_EQ(learned, expected);
  // In a prompt too, where nothing is a template's.
  encoder.encode({.spans = {{eos, false}, {"a", true}}}, ids, learned);
  EXPECT_EQ(std::ranges::count(ids, 256), 1);
}

TEST_F(RecordEncoderTest, AnswersThatArePartOfAPromptAreNotLearned) {
  const RecordEncoder encoder(*bytes_, ChatTemplate::named("plain", "", "<|endoftext|>"));
  const Record record{.messages = {{"user", "a", false},
                                   {"assistant", "b", false},
                                   {"user", "c", false},
                                   {"assistant", "d"}}};
  EXPECT_EQ(encoded(encoder, record), " [97] [256] [98] [256] [99] [256] 100 256");
}

TEST_F(RecordEncoderTest, NamesOfSpecialTokensInTextsAreTold) {
  ScratchDirectory directory;
  auto warning = [&](const std::string& name, const std::string& content, RecordKind kind) {
    const std::vector<fs::path> files{directory.write(name, content)};
    return special_name_warning(local_entries(files), {.kind = kind}, *bytes_);
  };
  const std::string named = R"({"text": "a<|endoftext|>b"})";
  EXPECT_EQ(warning("a.txt", "a <|endoftext> b\n<|endoftext|>\nc", RecordKind::kText), "");
  expect_contains(warning("b.txt", "a <|endoftext|>\n", RecordKind::kText),
                  "holds '<|endoftext|>', the name of a special token");
  expect_contains(warning("c.jsonl", "{\"text\": \"a\"}\n" + named, RecordKind::kText), "holds");
  expect_contains(
      warning("d.jsonl", R"({"prompt": "a", "completion": "b<|endoftext|>"})", RecordKind::kChat),
      "holds '<|endoftext|>'");
  // To who looks, too.
  std::vector<int32_t> ids;
  bytes_->encode("a<|endoftext|>b", ids);
  ids.push_back(256);
  EXPECT_EQ(decode_with_names(*bytes_, ids), "a\\<|endoftext|>b<|endoftext|>");
  const auto llama = load_tokenizer((kTests / "tokenizer/goldens/llama3.json").string());
  ids.assign(llama->document_prefix().begin(), llama->document_prefix().end());
  llama->encode("the <|eot_id|>", ids);
  EXPECT_EQ(decode_with_names(*llama, ids), "<|begin_of_text|>the \\<|eot_id|>");
}

TEST_F(RecordEncoderTest, AnEndOfAnswersThatIsNoTokenIsTold) {
  EXPECT_EQ(answer_end_warning(*bytes_, ChatTemplate::named("plain", "", "<|endoftext|>")), "");
  expect_contains(answer_end_warning(*bytes_, ChatTemplate::named("chatml", "", "")),
                  "the chat template chatml ends an answer with '<|im_end|>', which is no special");
}

TEST_F(RecordEncoderTest, TokensThatReachAcrossABorderAreNotLearned) {
  const auto tokenizer = load_tokenizer((kTests / "tokenizer/goldens/llama3.json").string());
  const RecordEncoder encoder(*tokenizer);
  // "reader" is one token, and what lies on both sides is not.
  EXPECT_EQ(marked(encoder, *tokenizer, {.spans = {{"the rea", false}, {"der", true}}}),
            "<|begin_of_text|>the reader<<|end_of_text|>>");
  EXPECT_EQ(marked(encoder, *tokenizer, {.spans = {{"the rea", true}, {"der the", false}}}),
            "<|begin_of_text|><the> reader the<|end_of_text|>");
  EXPECT_EQ(marked(encoder, *tokenizer,
                   {.spans = {{"the", false}, {" the r", true}, {"ea", false}, {"der the", true}}}),
            "<|begin_of_text|>the< the> reader< the><<|end_of_text|>>");
}

TEST_F(RecordEncoderTest, ConversationsNeedATemplateAndItsTokens) {
  const Record record{.messages = {{"user", "a"}, {"assistant", "b"}}};
  expect_contains(problem(plain_, record), "name one by --chat_template");
  expect_contains(
      user_error([&] { RecordEncoder(*bytes_, ChatTemplate::named("llama2", "<s>", "</s>")); }),
      "the chat template llama2 writes the token '<s>', which is no special token");
  const RecordEncoder chatml(*bytes_, ChatTemplate::named("chatml", "", ""));
  EXPECT_EQ(marked(chatml, *bytes_, {.messages = {{"assistant", "b"}}}),
            "<|im_start|>assistant\n<b><<><|><i><m><_><e><n><d><|><>>\n");
  expect_contains(problem(RecordEncoder(*bytes_, ChatTemplate::named("qwen2.5", "", "")),
                          {.messages = {{"tool", "a"}}}),
                  "message 0 is of the role 'tool'");
}

TEST_F(RecordEncoderTest, TemplatesAreFoundBesideTheTokenizer) {
  const std::string plain =
      "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}";
  ScratchDirectory directory;
  const fs::path path = directory.path();
  EXPECT_FALSE(find_chat_template("byte", *bytes_, ""));
  EXPECT_FALSE(find_chat_template(path, *bytes_, ""));
  // Tokens that no file names are those that the tokenizer puts around documents.
  EXPECT_EQ(find_chat_template("byte", *bytes_, "plain")->end_token(), kEndOfTextName);
  write_file_atomic(path / "tokenizer_config.json", R"({"eos_token": "<e>"})");
  EXPECT_FALSE(find_chat_template(path, *bytes_, ""));
  EXPECT_EQ(find_chat_template(path, *bytes_, "plain")->end_token(), "<e>");
  write_file_atomic(path / "tokenizer_config.json",
                    R"({"eos_token": "<e>", "chat_template": "{{ x }}"})");
  expect_contains(user_error([&] { find_chat_template(path, *bytes_, ""); }),
                  "tokenizer_config.json' is not known");
  EXPECT_EQ(find_chat_template(path, *bytes_, "chatml")->name(), "chatml");
  write_file_atomic(path / "chat_template.jinja", plain);
  EXPECT_EQ(find_chat_template(path / "tokenizer.json", *bytes_, "")->name(), "plain");
  write_file_atomic(path / "chat_template.jinja", "{{ y }}");
  expect_contains(user_error([&] { find_chat_template(path, *bytes_, ""); }),
                  "chat_template.jinja' is not known");
  write_file_atomic(path / "tokenizer_config.json", "{");
  expect_contains(user_error([&] { find_chat_template(path, *bytes_, ""); }), "is not JSON");
}

TEST_F(RecordEncoderTest, FingerprintsDifferWhereIdsDo) {
  auto of = [&](const char* style, const char* eos) {
    return RecordEncoder(*bytes_, ChatTemplate::named(style, "", eos)).fingerprint();
  };
  EXPECT_EQ(of("plain", "<|endoftext|>"), of("plain", "<|endoftext|>"));
  EXPECT_EQ(of("chatml", "a"), of("chatml", "b"));
  EXPECT_NE(of("chatml", ""), of("qwen2.5", ""));
  EXPECT_NE(of("chatml", ""), plain_.fingerprint());
}

TEST_F(RecordEncoderTest, ManyThreadsEncodeAtOnce) {
  const auto tokenizer = load_tokenizer((kTests / "tokenizer/goldens/neox.json").string());
  const RecordEncoder encoder(*tokenizer, ChatTemplate::named("plain", "", "<|endoftext|>"));
  const Record record{.messages = {{"user", "the engine  reads"}, {"assistant", "e\u0301 x"}}};
  const std::string expected = encoded(encoder, record);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(encoded(encoder, record), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera
