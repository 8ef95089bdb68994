#include "data/chat_jinja.h"

#include <vector>

#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kRole = "message['role']";

std::string quoted(std::string_view text) {
  std::string literal = "'";
  for (char c : text) {
    if (c == '\n') {
      literal += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') literal += '\\';
    literal += c;
  }
  return literal + "'";
}

// A sum of strings.
class Sum {
 public:
  // "%b", "%e" and "%r" of a pattern are the tokens and `role`, an expression.
  Sum& pattern(std::string_view pattern, std::string_view role = kRole) {
    while (!pattern.empty()) {
      const size_t sign = std::min(pattern.find('%'), pattern.size());
      text(pattern.substr(0, sign));
      pattern.remove_prefix(sign);
      if (pattern.empty()) break;
      expression(pattern[1] == 'b' ? "bos_token" : pattern[1] == 'e' ? "eos_token" : role);
      pattern.remove_prefix(2);
    }
    return *this;
  }
  Sum& text(std::string_view text) {
    if (!text.empty()) expression(quoted(text));
    return *this;
  }
  Sum& expression(std::string_view expression) {
    terms_.emplace_back(expression);
    return *this;
  }
  std::string written() const { return terms_.empty() ? "''" : join(terms_, " + "); }
  // "" if there is nothing in it.
  std::string output() const { return terms_.empty() ? "" : cat("{{- ", written(), " }}\n"); }

 private:
  std::vector<std::string> terms_;
};

std::string content_of(std::string_view content, bool trims) {
  return trims ? cat("(", content, ")|trim") : std::string(content);
}

// The system prompt of the first message with what stands around it, as `system_message`, and the
// other messages as `loop_messages`.
std::string split_system(const ChatStyle& style) {
  const bool head = style.place == SystemPlace::kHead;
  Sum system;
  if (!head) system.pattern(style.system.before);
  system.expression(content_of("messages[0]['content']", head));
  if (!style.always_head) system.pattern(style.system.after);
  return cat(
      "{%- if messages[0]['role'] == 'system' %}\n{%- set system_message = ", system.written(),
      " %}\n{%- set loop_messages = messages[1:] %}\n{%- else %}\n"
      "{%- set system_message = '' %}\n{%- set loop_messages = messages %}\n{%- endif %}\n");
}

std::string turns(const ChatStyle& style, std::string_view messages) {
  std::string user_content = "message['content']";
  if (style.place == SystemPlace::kFirstUser)
    user_content = "(system_message if loop.index0 == 0 else '') + " + user_content;
  if (style.place == SystemPlace::kLastUser)
    user_content = "(system_message if loop.last else '') + " + user_content;
  const bool system_turn = style.place == SystemPlace::kTurn;
  const bool as_user =
      style.system.before == style.user.before && style.system.after == style.user.after;
  std::string text = cat("{%- for message in ", messages, " %}\n");
  if (style.alternates)
    text += cat("{%- if (", kRole,
                " == 'user') != (loop.index0 % 2 == 0) %}\n{{- raise_exception('user and assistant "
                "must alternate') }}\n{%- endif %}\n");
  text += cat("{%- if ", kRole, " == 'assistant' %}\n",
              Sum()
                  .pattern(style.assistant.before)
                  .pattern(style.answer_begin)
                  .expression(content_of("message['content']", style.trims || style.trims_answers))
                  .pattern(style.assistant.after)
                  .pattern(style.answer_tail)
                  .output());
  if (system_turn && !as_user)
    text += cat("{%- elif ", kRole, " == 'system' %}\n",
                Sum()
                    .pattern(style.system.before)
                    .expression(content_of("message['content']", style.trims))
                    .pattern(style.system.after)
                    .output());
  text += style.any_role ? "{%- else %}\n"
                         : cat("{%- elif ", kRole, " == 'user'",
                               style.later_system || (system_turn && as_user)
                                   ? cat(" or ", kRole, " == 'system'")
                                   : "",
                               " %}\n");
  text += Sum()
              .pattern(style.user.before)
              .expression(content_of(user_content, style.trims))
              .pattern(style.user.after)
              .output();
  if (!style.any_role)
    text += cat("{%- else %}\n{{- raise_exception('no place for the role ' + ", kRole, ") }}\n");
  return text + "{%- endif %}\n{%- endfor %}\n";
}

}  // namespace

std::string chat_jinja(const ChatStyle& style, std::string_view default_system) {
  const bool splits = style.place != SystemPlace::kTurn && style.place != SystemPlace::kRefused;
  std::string text = Sum().pattern(style.begin).output();
  if (splits) text += split_system(style);
  if (style.place == SystemPlace::kHead) {
    Sum head;
    head.pattern(style.system.before).expression("system_message");
    text += (style.always_head ? head.pattern(style.system.after) : head).output();
  } else if (!style.slots.empty()) {
    text += cat(
        "{%- if messages[0]['role'] != 'system' %}\n",
        Sum().pattern(style.slot_prefix).text(default_system).pattern(style.slot_suffix).output(),
        "{%- endif %}\n");
  }
  text += turns(style, splits ? "loop_messages" : "messages");
  const Sum before_answer = Sum().pattern(style.assistant.before, "'assistant'");
  if (!style.end.empty()) {
    text += Sum().pattern(style.end).output();
  } else if (!before_answer.output().empty()) {
    text += cat("{%- if add_generation_prompt %}\n", before_answer.output(), "{%- endif %}\n");
  }
  text.pop_back();
  return text;
}

}  // namespace tessera
