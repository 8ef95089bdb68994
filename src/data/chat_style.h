#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

// Used by chat_template.cpp and chat_jinja.cpp alone: what the known templates write. In patterns
// "%b" and "%e" stand for the tokens that begin and end a text, "%r" for the role of the message.

// Before and behind the content of a message.
struct ChatTurn {
  std::string_view before, after;
};

// Where the first message goes if it is the system's.
enum class SystemPlace {
  kTurn,       // into a turn of its own, as later ones
  kHead,       // before all turns
  kFirstUser,  // into the first message, which is the user's
  kLastUser,   // into the last message if that is the user's
  kRefused,
};

struct ChatStyle {
  std::string_view name;
  uint64_t fingerprint;  // of the template's tokens, without the literals of `slots`
  std::string_view begin;
  SystemPlace place;
  ChatTurn system, user, assistant;
  std::string_view answer_begin = {};  // behind assistant.before, learned
  std::string_view answer_tail = {};   // behind assistant.after, not learned
  std::string_view end = {};
  bool trims = false;          // contents lose white space at their ends
  bool trims_answers = false;  // those of the assistant do
  bool alternates = false;     // user and assistant in turns
  bool any_role = false;       // as the user's turn
  bool later_system = false;   // that of the system too, behind the first message
  bool always_head = false;    // kHead: without a system message too
  bool needs_bos = false, needs_eos = false;
  // Numbers of literals that may differ. The last one is slot_prefix, the system prompt for
  // conversations without one, slot_suffix.
  std::span<const int> slots = {};
  std::string_view slot_prefix = {}, slot_suffix = {};
};

std::span<const ChatStyle> chat_styles();

// Whether a name is one that some known template has.
bool is_known_chat_name(std::string_view name);

}  // namespace tessera
