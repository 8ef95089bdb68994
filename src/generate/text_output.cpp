#include "generate/text_output.h"

#include <algorithm>

namespace tessera {
namespace {

// The character, or the part of one, that a text begins with.
struct Character {
  size_t bytes;
  enum { kWhole, kCut, kInvalid } kind;  // cut: whole with other bytes behind the text
};

Character first_character(std::string_view text) {
  auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = at(0);
  if (lead < 0x80) return {1, Character::kWhole};
  size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {1, Character::kInvalid};
  // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
  unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Character::kCut};
    if (at(i) < low || at(i) > high) return {i, Character::kInvalid};
    low = 0x80;
    high = 0xbf;
  }
  return {length, Character::kWhole};
}

// Moves whole characters from the front of `text` to `shown`; with `all` also one that is cut.
void show(std::string_view& text, bool all, std::string& shown) {
  while (!text.empty()) {
    Character c = first_character(text);
    if (c.kind == Character::kCut && !all) return;
    if (c.kind == Character::kWhole)
      shown += text.substr(0, c.bytes);
    else
      shown += "\xef\xbf\xbd";
    text.remove_prefix(c.bytes);
  }
}

// Length of the longest end of `text` with which `stop` begins.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

std::string TextOutput::add(std::string_view bytes) {
  if (stopped_) return "";
  held_ += bytes;
  size_t end = std::string::npos, uncertain = 0;
  for (const std::string& stop : stops_) {
    end = std::min(end, held_.find(stop));
    uncertain = std::max(uncertain, overlap(held_, stop));
  }
  std::string shown;
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
    return finish();
  }
  std::string_view certain = std::string_view(held_).substr(0, held_.size() - uncertain);
  size_t before = certain.size();
  // A character cut by a stop text's beginning is not cut for good.
  show(certain, false, shown);
  held_.erase(0, before - certain.size());
  return shown;
}

std::string TextOutput::finish() {
  std::string shown;
  std::string_view rest = held_;
  show(rest, true, shown);
  held_.clear();
  return shown;
}

}  // namespace tessera
