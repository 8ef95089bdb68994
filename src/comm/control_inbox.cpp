#include "comm/control_inbox.h"

#include "base/text.h"

namespace tessera {

std::string control_message(std::string_view tag, std::string_view kind, std::string_view text) {
  return cat(tag, "\n", kind, "\n", text);
}

bool ControlInbox::put(int from, std::string_view bytes, uint64_t missing) {
  {
    std::lock_guard lock(mutex_);
    Sender& sender = senders_[static_cast<size_t>(from)];
    if (!sender.open) {
      size_t tag = bytes.find('\n');
      size_t kind = tag == std::string_view::npos ? tag : bytes.find('\n', tag + 1);
      if (kind == std::string_view::npos) return false;
      std::deque<Letter>& letters = sender.letters[std::string(bytes.substr(0, tag))];
      sender.open = &letters.emplace_back();
      sender.open->kind = bytes.substr(tag + 1, kind - tag - 1);
      bytes.remove_prefix(kind + 1);
    }
    sender.open->text += bytes;
    sender.open->missing = missing;
    sender.open->heard = std::chrono::steady_clock::now();
    if (missing == 0) sender.open = nullptr;
  }
  arrived_.notify_all();
  return true;
}

std::optional<ControlInbox::Letter> ControlInbox::take(int from, const std::string& tag,
                                                       std::chrono::milliseconds time,
                                                       TimePoint& heard) {
  std::unique_lock lock(mutex_);
  std::deque<Letter>& letters = senders_[static_cast<size_t>(from)].letters[tag];
  arrived_.wait_for(lock, time, [&] {
    bool whole = !letters.empty() && letters.front().missing == 0;
    return whole || health_.failed() || health_.has_left(from);
  });
  if (letters.empty()) return std::nullopt;
  if (letters.front().missing > 0) {
    heard = letters.front().heard;
    return std::nullopt;
  }
  std::optional<Letter> letter = std::move(letters.front());
  letters.pop_front();
  return letter;
}

void ControlInbox::wake() {
  // Not between somebody's look at the health and its sleep.
  { std::lock_guard lock(mutex_); }
  arrived_.notify_all();
}

}  // namespace tessera
