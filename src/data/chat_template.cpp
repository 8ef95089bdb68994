#include "data/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/chat_jinja.h"
#include "data/chat_style.h"
#include "data/jinja_tokens.h"

namespace tessera {
namespace {

constexpr std::string_view kDefaultSystem = "You are a helpful assistant.";

std::string names_of_styles() {
  std::vector<std::string_view> names;
  for (const ChatStyle& style : chat_styles()) names.push_back(style.name);
  return join(names, ", ");
}

const std::string& literal_number(const std::vector<JinjaToken>& tokens, int number) {
  for (const JinjaToken& token : tokens)
    if (token.kind == JinjaToken::Kind::kLiteral && number-- == 0) return token.text;
  internal_error(__FILE__, __LINE__, "number", "the template has fewer literals");
}

// The default system prompt of a template that is of this style, or nullopt.
std::optional<std::string> match(const ChatStyle& style, const std::vector<JinjaToken>& tokens) {
  if (fingerprint_of(tokens, style.slots) != style.fingerprint) {
    const std::string own = chat_jinja(style, kDefaultSystem);
    if (tokens != jinja_tokens(own, style.name)) return std::nullopt;
    return std::string(style.slots.empty() ? "" : kDefaultSystem);
  }
  if (style.slots.empty()) return "";
  std::string_view text = literal_number(tokens, style.slots.back());
  if (!text.starts_with(style.slot_prefix) || !text.ends_with(style.slot_suffix) ||
      text.size() < style.slot_prefix.size() + style.slot_suffix.size())
    return std::nullopt;
  text.remove_prefix(style.slot_prefix.size());
  text.remove_suffix(style.slot_suffix.size());
  return std::string(text);
}

// What a template has that none of those known has.
std::string unknown_in(const std::vector<JinjaToken>& tokens) {
  std::vector<std::string> unknown;
  for (const JinjaToken& token : tokens) {
    if (token.kind != JinjaToken::Kind::kName || is_known_chat_name(token.text)) continue;
    std::string shown = cat("'", token.text.substr(0, 40), "'");
    if (std::ranges::find(unknown, shown) == unknown.end()) unknown.push_back(std::move(shown));
    if (unknown.size() == 5) break;
  }
  if (!unknown.empty()) return cat("unknown in it: ", join(unknown, ", "));
  return "its words are known, what it does with them is not";
}

// What Python takes for white space, as UTF-8.
constexpr std::array<std::string_view, 29> kSpaces{
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",
    "\x1e",   "\x1f",   "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
    "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
    "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

std::string_view strip_begin(std::string_view text) {
  for (size_t i = 0; i < kSpaces.size(); ++i) {
    if (!text.starts_with(kSpaces[i])) continue;
    text.remove_prefix(kSpaces[i].size());
    i = static_cast<size_t>(-1);
  }
  return text;
}

std::string_view strip_end(std::string_view text) {
  for (size_t i = 0; i < kSpaces.size(); ++i) {
    if (!text.ends_with(kSpaces[i])) continue;
    text.remove_suffix(kSpaces[i].size());
    i = static_cast<size_t>(-1);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_end(strip_begin(text)); }

// Puts the text of one conversation together.
class ChatWriter {
 public:
  ChatWriter(const ChatStyle& style, std::string_view bos, std::string_view eos)
      : style_(style), bos_(bos), eos_(eos) {}

  // Of the template: "%b" and "%e" stand for the tokens, "%r" for the role.
  void markup(std::string_view pattern, bool learn = false, std::string_view role = {}) {
    std::string text;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '%') {
        text += pattern[i];
        continue;
      }
      switch (pattern[++i]) {
        case 'b': text += bos_; break;
        case 'e': text += eos_; break;
        default:
          // A role that is known to no template could be anything.
          if (role == "system" || role == "user" || role == "assistant") {
            text += role;
          } else {
            append(text, learn, true);
            text.clear();
            append(role, learn, false);
          }
      }
    }
    append(text, learn, true);
  }
  void content(std::string_view text, bool answer, bool learn) {
    const bool trims = style_.trims || (answer && style_.trims_answers);
    append(trims ? strip(text) : text, learn, false);
  }
  // As `text` is, whatever the style.
  void append(std::string_view text, bool learn, bool markup) {
    if (text.empty()) return;
    if (spans_.empty() || spans_.back().learn != learn || spans_.back().markup != markup)
      spans_.push_back({"", learn, markup});
    spans_.back().text += text;
  }
  // The system prompt inside a message of the user.
  void system_in_user(std::string_view system, std::string_view text) {
    markup(style_.system.before);
    content_kept(system);
    const std::string_view kept = style_.trims ? strip_end(text) : text;
    // Where nothing is left behind it, what stands between is at the end and stripped too.
    markup(style_.trims && kept.empty() ? strip_end(style_.system.after) : style_.system.after);
    content_kept(kept);
  }
  std::vector<TextSpan> take() { return std::move(spans_); }

 private:
  void content_kept(std::string_view text) { append(text, false, false); }

  const ChatStyle& style_;
  std::string_view bos_, eos_;
  std::vector<TextSpan> spans_;
};

}  // namespace

ChatTemplate::ChatTemplate(const ChatStyle& style, std::string bos, std::string eos,
                           std::string system)
    : style_(&style),
      bos_(std::move(bos)),
      eos_(std::move(eos)),
      default_system_(std::move(system)) {}

ChatTemplate::ChatTemplate(std::string_view jinja, std::string bos, std::string eos,
                           std::string_view name)
    : style_(nullptr), bos_(std::move(bos)), eos_(std::move(eos)) {
  const std::vector<JinjaToken> tokens = jinja_tokens(jinja, name);
  for (const ChatStyle& style : chat_styles()) {
    std::optional<std::string> system = match(style, tokens);
    if (!system) continue;
    style_ = &style;
    default_system_ = std::move(*system);
  }
  if (!style_) {
    throw UserError(cat(
        "the chat template of '", name, "' is not known (fingerprint ",
        hex(fingerprint_of(tokens, {})), "; ", unknown_in(tokens), "): name one of ",
        names_of_styles(),
        " by --chat_template if that is what it writes, or give conversations as \"prompt\" and "
        "\"completion\""));
  }
  if ((style_->needs_bos && bos_.empty()) || (style_->needs_eos && eos_.empty())) {
    throw UserError(cat("the chat template of '", name, "' (", style_->name, ") needs ",
                        style_->needs_bos && bos_.empty() ? "bos_token" : "eos_token",
                        ", which is not given there"));
  }
}

ChatTemplate ChatTemplate::named(std::string_view style, std::string bos, std::string eos) {
  for (const ChatStyle& known : chat_styles()) {
    if (known.name != style) continue;
    if ((known.needs_bos && bos.empty()) || (known.needs_eos && eos.empty())) {
      throw UserError(cat("the chat template ", style, " needs a token that the tokenizer lacks: ",
                          known.needs_bos && bos.empty() ? "beginning" : "end", " of text"));
    }
    return {known, std::move(bos), std::move(eos),
            std::string(known.slots.empty() ? "" : kDefaultSystem)};
  }
  throw UserError(cat("there is no chat template '", style, "': known are ", names_of_styles()));
}

std::string_view ChatTemplate::name() const { return style_->name; }

std::string_view ChatTemplate::begin_token() const {
  return style_->needs_bos ? std::string_view(bos_) : "";
}

std::string_view ChatTemplate::end_token() const {
  return style_->needs_eos ? std::string_view(eos_) : "";
}

std::string ChatTemplate::answer_end() const {
  ChatWriter writer(*style_, bos_, eos_);
  writer.markup(style_->assistant.after);
  return std::string(strip(writer.take().at(0).text));
}

std::string ChatTemplate::jinja() const { return chat_jinja(*style_, default_system_); }

uint64_t ChatTemplate::fingerprint() const {
  uint64_t hash = hash_text("tessera chat 1");
  for (std::string_view text :
       {name(), begin_token(), end_token(), std::string_view(default_system_)})
    hash = hash_combine(hash, hash_text(text));
  return hash;
}

std::vector<TextSpan> ChatTemplate::render(std::span<const Message> messages, bool prompt) const {
  const ChatStyle& style = *style_;
  if (messages.empty()) throw UserError("a conversation without messages has no text");
  const bool system_first = messages[0].role == "system";
  const size_t first = system_first && style.place != SystemPlace::kTurn ? 1 : 0;
  auto refuse = [&](size_t message, std::string_view why) {
    throw UserError(cat("message ", message, " is of the role '", messages[message].role,
                        "': the chat template ", style.name, " ", why));
  };
  if (first == 1 && style.place == SystemPlace::kRefused) refuse(0, "has no place for that");

  ChatWriter writer(style, bos_, eos_);
  writer.markup(style.begin);
  if (style.place == SystemPlace::kHead) {
    writer.markup(style.system.before);
    if (first == 1) writer.append(strip(messages[0].content), false, false);
    if (first == 1 || style.always_head) writer.markup(style.system.after);
  } else if (!style.slots.empty() && !system_first) {
    writer.markup(style.slot_prefix);
    writer.append(default_system_, false, true);
    writer.markup(style.slot_suffix);
  }
  for (size_t i = first; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool user = message.role == "user", assistant = message.role == "assistant";
    if (style.alternates && user != ((i - first) % 2 == 0))
      refuse(i, "takes user and assistant in turns, behind a system message where it takes one");
    const bool system =
        message.role == "system" && (style.place == SystemPlace::kTurn || style.later_system);
    if (!user && !assistant && !system && !style.any_role) refuse(i, "has no place for that");
    const ChatTurn& turn = assistant                       ? style.assistant
                           : system && !style.later_system ? style.system
                                                           : style.user;
    writer.markup(turn.before, false, message.role);
    const bool with_system = user && first == 1 &&
                             ((style.place == SystemPlace::kFirstUser && i == first) ||
                              (style.place == SystemPlace::kLastUser && i + 1 == messages.size()));
    const bool learn = assistant && message.learn;
    if (assistant) writer.markup(style.answer_begin, learn);
    if (with_system) {
      writer.system_in_user(messages[0].content, message.content);
    } else {
      writer.content(message.content, assistant, learn);
    }
    writer.markup(turn.after, learn);
    if (assistant) writer.markup(style.answer_tail);
  }
  writer.markup(prompt && style.end.empty() ? style.assistant.before : style.end, false,
                "assistant");
  return writer.take();
}

}  // namespace tessera
