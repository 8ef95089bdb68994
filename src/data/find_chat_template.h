#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// The chat template `style` (chat_template.h), or, where that is "", the tokenizer's own: of
// `chat_template.jinja` or `tokenizer_config.json` in its directory, the first. The tokens that
// begin and end a text are those of the tokenizer_config.json, or else those that the tokenizer
// puts around documents. `path`: the tokenizer's file or directory, or "byte". nullopt where it has
// no template of its own. UserError where the template is not known.
std::optional<ChatTemplate> find_chat_template(const std::filesystem::path& path,
                                               const Tokenizer& tokenizer,
                                               const std::string& style);

// The tokenizer's own template as it is written there, known or not; "" if there is none.
std::string find_chat_jinja(const std::filesystem::path& path);

// What a `tokenizer_config.json` says of conversations; "" where it does not. `chat_template` is a
// string, or a list of which the one called "default" is taken; tokens are strings or objects with
// "content".
struct ChatConfig {
  std::string jinja, bos, eos;
};
// UserError, naming `name`, where it is not JSON.
ChatConfig read_chat_config(std::string_view tokenizer_config, std::string_view name);

}  // namespace tessera
