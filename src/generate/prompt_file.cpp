#include "generate/prompt_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// What is wrong with a line of JSON, or nullptr: then `prompt` is its prompt.
const char* parse_line(std::string_view line, std::string& prompt) {
  if (line.size() > kMaxPromptLineBytes) return "longer than 64 MiB";
  const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (row.is_discarded()) return "not JSON";
  if (!row.is_object()) return "not an object";
  if (!row.contains("prompt")) return "there is no key \"prompt\"";
  if (!row["prompt"].is_string()) return "\"prompt\" is not a string";
  prompt = row["prompt"].get<std::string>();
  return nullptr;
}

}  // namespace

std::vector<std::string> parse_prompts(std::string_view text, PromptFormat format,
                                       const std::string& name) {
  std::vector<std::string> prompts;
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
    } else if (const char* problem = parse_line(line, prompts.emplace_back())) {
      fail(problem, "a line must be a JSON object with a string \"prompt\"");
    }
  }
  if (prompts.empty())
    throw UserError(cat(name, " holds no prompt: give at least one, a line each"));
  return prompts;
}

}  // namespace tessera
