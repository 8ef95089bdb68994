#pragma once
#include <string>
#include <string_view>

#include "data/chat_style.h"

namespace tessera {

// A template in Jinja that writes what a style writes, with `default_system` in conversations
// without a system prompt where the style has one; with add_generation_prompt also what stands
// before an answer. Its bos_token and eos_token are the program's that renders it. What the style
// refuses it refuses by raise_exception.
std::string chat_jinja(const ChatStyle& style, std::string_view default_system);

}  // namespace tessera
