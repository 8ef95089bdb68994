#include "generate/prompt_file.h"

#include <gtest/gtest.h>

#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using Strings = std::vector<std::string>;

Strings lines(std::string_view text) { return parse_prompts(text, PromptFormat::kLines, "'p'"); }
Strings objects(std::string_view text) {
  return parse_prompts(text, PromptFormat::kJsonLines, "'p.jsonl'");
}

TEST(PromptFile, APromptALine) {
  EXPECT_EQ(lines("one\ntwo two\n"), (Strings{"one", "two two"}));
  EXPECT_EQ(lines("one\ntwo"), (Strings{"one", "two"}));
  // Blank lines, CRLF, a byte order mark; blanks at both ends of a prompt stay.
  EXPECT_EQ(lines("\xef\xbb\xbf one \r\n\r\n \t\n\n{\"prompt\"\n\xff"),
            (Strings{" one ", "{\"prompt\"", "\xff"}));
}

TEST(PromptFile, JsonLines) {
  EXPECT_EQ(
      objects("{\"prompt\": \"a\\nb\"}\n\n {\"id\": 123456789012345678901, \"prompt\": \"\"}\r\n"
              "{\"prompt\": \"\\u00e9\\u0000\"}"),
      (Strings{"a\nb", "", std::string("\xc3\xa9\0", 3)}));
}

TEST(PromptFile, ErrorsNameFileAndLine) {
  struct {
    std::string text;
    const char* message;
  } const json[] = {
      {"{\"prompt\": \"a\"}\n\n{\"prompt\": 1}\n", "'p.jsonl', line 3: \"prompt\" is not a string"},
      {"{\"text\": \"a\"}", "line 1: there is no key \"prompt\""},
      {"[1]", "line 1: not an object"},
      {"plain text", "'p.jsonl', line 1: "},
      {"{\"prompt\": \"a\"} {}", "line 1: "},
      {"{\"prompt\": \"\xff\"}", "line 1: "},
      {"{\"prompt\": \"a", "line 1: "},
      {std::string(5000, '['), "line 1: "},
      {"", "'p.jsonl' holds no prompt"},
      {" \n\r\n", "'p.jsonl' holds no prompt"},
  };
  for (const auto& c : json) expect_contains(user_error([&] { objects(c.text); }), c.message);
  expect_contains(user_error([] { lines(std::string_view("a\nb\0c", 5)); }),
                  "'p', line 2: there is a zero byte");
  expect_contains(user_error([] { lines("\n"); }), "'p' holds no prompt");
  expect_contains(user_error([] {
                    objects("{\"prompt\": \"" + std::string(kMaxPromptLineBytes, 'a') + "\"}");
                  }),
                  "line 1: longer than 64 MiB");
}

TEST(PromptFile, CutAnywhere) {
  const std::string text = "{\"prompt\": \"a\\u00e9\", \"x\": [1, {}]}";
  for (size_t n = 0; n < text.size(); ++n)
    EXPECT_THROW(objects(std::string_view(text).substr(0, n)), UserError) << n;
}

}  // namespace
}  // namespace tessera
