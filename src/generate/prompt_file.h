#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class PromptFormat {
  kLines,      // a prompt a line
  kJsonLines,  // a JSON object a line, the prompt in its string "prompt"
};

// Longest line of JSON.
inline constexpr size_t kMaxPromptLineBytes = size_t{64} << 20;

// The prompts of a file's text in their order. Lines may end in CRLF, a byte order mark may begin
// the text; blank lines are left out, so only JSON can give an empty prompt. Lines of plain text
// are bytes, of any encoding. `name` is that of the file in messages. UserError: a zero byte in
// plain text; a line of JSON is broken, too long, no object or without a string "prompt" (with the
// line's number); there is no prompt at all.
std::vector<std::string> parse_prompts(std::string_view text, PromptFormat format,
                                       const std::string& name);

}  // namespace tessera
