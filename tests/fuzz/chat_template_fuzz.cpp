#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/chat_template.h"
#include "data/find_chat_template.h"
#include "data/jinja_tokens.h"

// Any bytes as a template: its tokens or a UserError; and as a tokenizer_config.json: refused, or
// texts of a conversation or a UserError. The content of messages is in the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string input(data, data + size);
  try {
    for (const JinjaToken& token : jinja_tokens(input, "input"))
      if (token.kind != JinjaToken::Kind::kLiteral && token.text.empty()) std::abort();
    ChatTemplate(input, "<s>", "</s>", "input");
  } catch (const UserError&) {
  }
  const std::vector<Message> messages{{"user", input.substr(0, size / 2)},
                                      {"assistant", input.substr(size / 2)}};
  try {
    const ChatConfig config = read_chat_config(input, "input");
    const ChatTemplate chat(config.jinja, config.bos, config.eos, "input");
    for (const TextSpan& span : chat.render(messages))
      if (span.text.empty()) std::abort();
  } catch (const UserError&) {
  }
  for (const char* style : {"llama2", "alpaca", "chatml"}) {
    std::string learned;
    for (const TextSpan& span : ChatTemplate::named(style, "<s>", "</s>").render(messages))
      if (span.learn && !span.markup) learned += span.text;
    if (style[0] == 'c' ? learned != messages[1].content
                        : messages[1].content.find(learned) == std::string::npos)
      std::abort();
  }
  return 0;
}
