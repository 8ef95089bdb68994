#include "tokenizer/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <span>

#include "base/text.h"

namespace tessera {
namespace {

std::string escaped(int32_t code_point) { return format("\\x{%X}", code_point); }

// A class of characters, ascending, as ranges.
std::string class_of(const std::vector<int32_t>& characters) {
  if (characters.size() == 1) return escaped(characters[0]);
  std::string text = "[";
  for (size_t i = 0, last; i < characters.size(); i = last + 1) {
    last = i;
    while (last + 1 < characters.size() && characters[last + 1] == characters[last] + 1) ++last;
    text += escaped(characters[i]);
    if (last > i) text += cat("-", escaped(characters[last]));
  }
  return text + "]";
}

// Of what follows `depth` bytes that all texts share. Characters that the same may follow are one
// class, so that the product of many (Hangul) stays short.
std::string regex_behind(std::span<const std::string> texts, size_t depth) {
  bool may_end = texts.front().size() == depth;
  if (may_end) texts = texts.subspan(1);
  if (texts.empty()) return "";
  std::vector<std::string> order;
  std::map<std::string, std::vector<int32_t>> leading;  // by what follows
  while (!texts.empty()) {
    CodePoint first = code_point_at(texts.front(), depth);
    auto same = [&](const std::string& text) {
      return code_point_at(text, depth).value == first.value;
    };
    size_t count = static_cast<size_t>(std::ranges::find_if_not(texts, same) - texts.begin());
    std::string rest = regex_behind(texts.first(count), depth + first.size);
    auto [known, inserted] = leading.try_emplace(rest);
    known->second.push_back(first.value);
    if (inserted) order.push_back(std::move(rest));
    texts = texts.subspan(count);
  }
  std::vector<std::string> ways;
  for (const std::string& rest : order) ways.push_back(class_of(leading.at(rest)) + rest);
  return cat("(?:", join(ways, "|"), may_end ? ")?" : ")");
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t position) {
  auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t code_point = -1;
  utf8proc_ssize_t size = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
      static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - position, 4)), &code_point);
  if (size <= 0) return {-1, 1};
  return {code_point, static_cast<size_t>(size)};
}

size_t character_before(std::string_view text, size_t end) {
  for (size_t size = 1; size <= std::min<size_t>(end, 4); ++size) {
    const CodePoint point = code_point_at(text.substr(0, end), end - size);
    if (point.value >= 0 && point.size == size) return end - size;
  }
  return end - 1;
}

std::string utf8_of(int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t size = utf8proc_encode_char(code_point, bytes);
  return std::string(bytes, bytes + size);
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    CodePoint character = code_point_at(text, i);
    if (character.value < 0) return false;
    i += character.size;
  }
  return true;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t i = 0; i < text.size(); i += characters.back().size()) {
    characters.push_back(text.substr(i, code_point_at(text, i).size));
  }
  return characters;
}

std::string regex_of(const std::vector<std::string>& texts) {
  return texts.empty() ? "" : regex_behind(texts, 0);
}

}  // namespace tessera
