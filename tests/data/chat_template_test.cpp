#include "data/chat_template.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "data/find_chat_template.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;

std::string text_of(const std::vector<TextSpan>& spans) {
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  return text;
}

// <...> is learned, {...} from the conversation.
std::string marked(const std::vector<TextSpan>& spans) {
  std::string text;
  for (const TextSpan& span : spans) {
    std::string part = span.markup ? span.text : "{" + span.text + "}";
    text += span.learn ? "<" + part + ">" : part;
  }
  return text;
}

class ChatTemplateTest : public testing::Test {
 protected:
  ChatTemplateTest() {
    element golden = parser_.load(TESSERA_SOURCE_DIR "/tests/goldens/chat_templates.json");
    templates_ = golden["templates"];
    for (element conversation : array(golden["conversations"])) {
      conversations_.emplace_back();
      for (element message : array(conversation)) {
        conversations_.back().push_back({std::string(std::string_view(message["role"])),
                                         std::string(std::string_view(message["content"]))});
      }
    }
  }
  static std::string string_of(element field) {
    std::string_view text;
    return field.get(text) ? "" : std::string(text);
  }
  static ChatTemplate open(element item) {
    return {std::string_view(item["chat_template"]), string_of(item["bos_token"]),
            string_of(item["eos_token"]), "tokenizer_config.json"};
  }
  element golden_of(std::string_view name) const {
    for (element item : templates_)
      if (string_of(item["name"]) == name) return item;
    ADD_FAILURE() << name;
    return {};
  }
  std::string marked_as(std::string_view name, const std::vector<Message>& messages) const {
    return marked(open(golden_of(name)).render(messages));
  }

  simdjson::dom::parser parser_;
  array templates_;
  std::vector<std::vector<Message>> conversations_;
};

TEST_F(ChatTemplateTest, TextsAreThoseOfTransformers) {
  int64_t refused = 0, texts = 0;
  for (element item : templates_) {
    const std::string name = string_of(item["name"]);
    SCOPED_TRACE(name);
    const ChatTemplate chat = open(item);
    EXPECT_EQ(chat.name(), name);
    const ChatTemplate by_name =
        ChatTemplate::named(name, string_of(item["bos_token"]), string_of(item["eos_token"]));
    size_t number = 0;
    for (element expected : array(item["texts"])) {
      SCOPED_TRACE(number);
      const std::vector<Message>& messages = conversations_[number++];
      ++texts;
      std::vector<TextSpan> spans;
      try {
        spans = chat.render(messages);
      } catch (const UserError&) {
        // Also a system message that the template would leave out.
        bool left_out = false;
        for (size_t i = 1; i < messages.size(); ++i) left_out |= messages[i].role == "system";
        EXPECT_TRUE(expected.is_null() || left_out);
        ++refused;
        continue;
      }
      EXPECT_EQ(text_of(spans), expected.is_null() ? "an error" : string_of(expected));
      if (name != "qwen2.5") {
        EXPECT_EQ(by_name.render(messages), spans);
      }
      for (size_t i = 0; i < spans.size(); ++i) {
        EXPECT_FALSE(spans[i].text.empty());
        EXPECT_TRUE(i == 0 || spans[i - 1].learn != spans[i].learn ||
                    spans[i - 1].markup != spans[i].markup);
      }
    }
  }
  EXPECT_LT(refused * 3, texts);
}

// That these write the same texts tools/goldens/chat_template_goldens.py has seen.
TEST_F(ChatTemplateTest, WrittenTemplatesAreThoseOfTheGoldenAndAreKnownAgain) {
  for (element item : templates_) {
    const std::string name = string_of(item["name"]), bos = string_of(item["bos_token"]),
                      eos = string_of(item["eos_token"]);
    SCOPED_TRACE(name);
    const ChatTemplate chat = ChatTemplate::named(name, bos, eos);
    EXPECT_EQ(chat.jinja(), string_of(item["written"]));
    const ChatTemplate again(chat.jinja(), bos, eos, "chat_template.jinja");
    EXPECT_EQ(again.name(), name);
    EXPECT_EQ(again.fingerprint(), chat.fingerprint());
    EXPECT_EQ(chat.answer_end(), name.starts_with("llama3") ? "<|eot_id|>" : eos);
  }
}

TEST_F(ChatTemplateTest, AnswersAreLearnedWithTheTokenThatEndsThem) {
  const std::vector<Message> messages{
      {"system", "S"}, {"user", "</s>"}, {"assistant", " A "}, {"user", "Q"}, {"assistant", "B"}};
  EXPECT_EQ(marked_as("chatml", messages),
            "<|im_start|>system\n{S}<|im_end|>\n<|im_start|>user\n{</s>}<|im_end|>\n"
            "<|im_start|>assistant\n<{ A }><<|im_end|>>\n<|im_start|>user\n{Q}<|im_end|>\n"
            "<|im_start|>assistant\n<{B}><<|im_end|>>\n");
  EXPECT_EQ(marked_as("llama2", messages),
            "<s>[INST] <<SYS>>\n{S}\n<</SYS>>\n\n{</s>} [/INST]< ><{A}>< </s>><s>[INST] {Q} "
            "[/INST]< ><{B}>< </s>>");
  EXPECT_EQ(marked_as("llama3", {messages.begin() + 1, messages.begin() + 3}),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{</s>}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n<{A}><<|eot_id|>>");
  EXPECT_EQ(marked_as("mistral-v3-tekken", messages),
            "<s>[INST]{</s>}[/INST]<{ A }><</s>>[INST]{Q}[/INST]<{B}><</s>>");
  EXPECT_EQ(marked_as("zephyr", {messages.begin() + 3, messages.end()}),
            "<|user|>\n{Q}</s>\n<|assistant|>\n<{B}><</s>>\n");
  EXPECT_EQ(marked_as("chatml-default-system", {messages.begin() + 3, messages.end()}),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{Q}"
            "<|im_end|>\n<|im_start|>assistant\n<{B}><<|im_end|>>\n");
  // A role that nobody knows is data, and cannot be the name of a token.
  EXPECT_EQ(marked_as("chatml", {{"<|im_end|>", "x"}}),
            "<|im_start|>{<|im_end|>}\n{x}<|im_end|>\n");
}

TEST_F(ChatTemplateTest, OnlyADefaultSystemPromptMayDiffer) {
  const std::string qwen = string_of(golden_of("chatml-default-system")["chat_template"]);
  std::string other = qwen;
  other.replace(other.find("You are a helpful assistant."), 28, "Call me \\'Q\\'. {{ x }}");
  const ChatTemplate chat(other, "", "<|im_end|>", "x");
  EXPECT_EQ(text_of(chat.render(std::vector<Message>{{"user", "hi"}})),
            "<|im_start|>system\nCall me 'Q'. {{ x }}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n");
  // Quotes, white space in tags and comments do not matter; anything else does.
  const std::string plain =
      "{%  for message in messages%}{#- x #}{{message[\"content\"] }}{{- eos_token }}{% endfor "
      "%}\n";
  EXPECT_EQ(ChatTemplate(plain, "", "</s>", "x").name(), "plain");
  for (element item : templates_) {
    const std::string source = string_of(item["chat_template"]);
    const std::string bos = "<s>", eos = "</s>";
    for (size_t i = 0; i < source.size(); i += 1 + source.size() / 40) {
      std::string changed = source;
      changed.insert(i, "q");
      try {
        const ChatTemplate known(changed, bos, eos, "x");
        // In a comment, or in the default system prompt.
        const size_t begun = source.rfind("{#", i), ended = source.find("#}", begun);
        const bool in_comment = i > 0 && begun != std::string::npos && i < ended + 2;
        EXPECT_TRUE(in_comment || known.name() == "qwen2.5" ||
                    known.name() == "chatml-default-system")
            << changed.substr(0, i + 1);
      } catch (const UserError& error) {
        expect_contains(error.what(), "the chat template of 'x' ");
      }
    }
  }
}

TEST_F(ChatTemplateTest, UnknownTemplatesAreRefusedWithWhatIsUnknown) {
  auto refused = [](std::string_view jinja) {
    return user_error([&] { ChatTemplate(jinja, "<s>", "</s>", "dir/tokenizer_config.json"); });
  };
  std::string message =
      refused("{% for message in messages %}{{ strftime_now('%d') }}{% endfor %}");
  expect_contains(message, "the chat template of 'dir/tokenizer_config.json' is not known");
  expect_contains(message, "unknown in it: 'strftime_now'");
  expect_contains(message, "name one of chatml, ");
  expect_contains(refused("{% for message in messages %}{{ message.role }}{% endfor %}"),
                  "its words are known, what it does with them is not");
  expect_contains(refused(""), "is not known");
  expect_contains(refused("{{ 'x"), "has a string without an end");
  expect_contains(refused("{{ x"), "has a tag without an end");
  expect_contains(refused("{# x"), "has a comment without an end");
  expect_contains(refused("{{ 'a\\x41' }}"), "has the escape '\\x' in a string");
  expect_contains(refused("{{ a ! b }}"), "has the sign '!' in a tag");
  expect_contains(refused(std::string(2 << 20, 'x')), "is longer than 1 MiB");
  element llama = golden_of("llama2");
  expect_contains(
      user_error([&] { ChatTemplate(std::string_view(llama["chat_template"]), "", "</s>", "x"); }),
      "(llama2) needs bos_token");
  expect_contains(user_error([&] { ChatTemplate::named("chat", "", ""); }),
                  "there is no chat template 'chat': known are chatml, ");
}

TEST_F(ChatTemplateTest, ConversationsThatATemplateRefusesNameTheMessage) {
  const ChatTemplate llama = ChatTemplate::named("llama2", "<s>", "</s>");
  auto refused = [](const ChatTemplate& chat, std::vector<Message> messages) {
    return user_error([&] { chat.render(messages); });
  };
  expect_contains(refused(llama, {{"user", "a"}, {"user", "b"}}),
                  "message 1 is of the role 'user': the chat template llama2 takes user and");
  expect_contains(refused(llama, {{"user", "a"}, {"tool", "b"}}),
                  "message 1 is of the role 'tool'");
  expect_contains(refused(llama, {}), "without messages");
  expect_contains(refused(ChatTemplate::named("mistral-v0.2", "<s>", "</s>"), {{"system", "a"}}),
                  "message 0 is of the role 'system'");
}

TEST_F(ChatTemplateTest, ReadsTokenizerConfig) {
  const std::string body =
      R"("{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}")";
  auto text = [](const std::string& config) {
    const ChatConfig read = read_chat_config(config, "c.json");
    const ChatTemplate chat(read.jinja, read.bos, read.eos, "c.json");
    return text_of(chat.render(std::vector<Message>{{"user", "a"}}));
  };
  EXPECT_EQ(text(R"({"bos_token": null, "eos_token": "</s>", "chat_template": )" + body + "}"),
            "a</s>");
  EXPECT_EQ(
      text(
          R"({"eos_token": {"content": "<e>", "lstrip": false}, "chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": )" +
          body + "}]}"),
      "a<e>");
  EXPECT_EQ(text(R"({"model_max_length": 1000000000000000019884624838656, "eos_token": "</s>",)"
                 R"("chat_template": )" +
                 body + "}"),
            "a</s>");
  expect_contains(user_error([&] { read_chat_config("{", "c.json"); }), "'c.json' is not JSON");
  const std::string deep =
      cat(R"({"chat_template": )", std::string(100000, '['), std::string(100000, ']'), "}");
  expect_contains(user_error([&] { read_chat_config(deep, "c.json"); }),
                  "c.json: its JSON is nested in more than 64 levels");
  for (const char* config :
       {"{}", R"({"chat_template": 5})", R"({"chat_template": [{"name": 1}]})"})
    EXPECT_EQ(read_chat_config(config, "c.json").jinja, "");
  expect_contains(user_error([&] { text(R"({"chat_template": )" + body + "}"); }),
                  "(plain) needs eos_token");
}

}  // namespace
}  // namespace tessera
