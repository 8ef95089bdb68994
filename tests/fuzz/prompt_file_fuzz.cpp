#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "generate/prompt_file.h"

// Any bytes as a file of prompts: at least one, or a UserError. Plain lines give their bytes: none
// holds a line break or a zero byte.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text{reinterpret_cast<const char*>(data), size};
  for (PromptFormat format : {PromptFormat::kLines, PromptFormat::kJsonLines}) {
    try {
      auto prompts = parse_prompts(text, format, "'file'");
      if (prompts.empty()) std::abort();
      if (format == PromptFormat::kJsonLines) continue;
      for (const std::string& prompt : prompts) {
        if (prompt.empty() || prompt.find_first_of(std::string_view("\n\0", 2)) != prompt.npos ||
            text.find(prompt) == text.npos)
          std::abort();
      }
    } catch (const UserError&) {
    }
  }
  return 0;
}
