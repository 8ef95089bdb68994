#include "generate/prompt_file.h"

#include <simdjson.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// What is wrong with a line of JSON, or nullptr: then `prompt` is its prompt.
const char* parse_line(simdjson::dom::parser& parser, std::string_view line, std::string& prompt) {
  if (line.size() > kMaxPromptLineBytes) return "longer than 64 MiB";
  simdjson::dom::element value, field;
  if (auto error = parser.parse(line.data(), line.size()).get(value))
    return simdjson::error_message(error);
  simdjson::dom::object object;
  if (value.get(object)) return "not an object";
  if (object.at_key("prompt").get(field)) return "there is no key \"prompt\"";
  std::string_view text;
  if (field.get(text)) return "\"prompt\" is not a string";
  prompt.assign(text);
  return nullptr;
}

}  // namespace

std::vector<std::string> parse_prompts(std::string_view text, PromptFormat format,
                                       const std::string& name) {
  std::vector<std::string> prompts;
  simdjson::dom::parser parser;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int64_t number = 1; !text.empty(); ++number) {
    size_t size = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, size);
    text.remove_prefix(std::min(size + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (trim(line).empty()) continue;
    auto fail = [&](const char* problem, const char* advice) {
      throw UserError(cat(name, ", line ", number, ": ", problem, "; ", advice));
    };
    if (format == PromptFormat::kLines) {
      if (line.find('\0') != line.npos)
        fail("there is a zero byte", "give a prompt a line, or JSON lines in a file named .jsonl");
      prompts.emplace_back(line);
    } else if (const char* problem = parse_line(parser, line, prompts.emplace_back())) {
      fail(problem, "a line must be a JSON object with a string \"prompt\"");
    }
  }
  if (prompts.empty())
    throw UserError(cat(name, " holds no prompt: give at least one, a line each"));
  return prompts;
}

}  // namespace tessera
