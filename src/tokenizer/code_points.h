#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct CodePoint {
  int32_t value;  // -1: a byte that is not UTF-8
  size_t size;    // bytes
};
CodePoint code_point_at(std::string_view text, size_t position);

// Where the character that ends before `end`, which is above 0, begins.
size_t character_before(std::string_view text, size_t end);

std::string utf8_of(int32_t code_point);

bool is_utf8(std::string_view text);

// `text`, which is UTF-8, cut into its characters.
std::vector<std::string_view> characters_of(std::string_view text);

// A regular expression (Oniguruma's) that matches the longest of `texts` at a position. They are
// UTF-8, sorted, none empty.
std::string regex_of(const std::vector<std::string>& texts);

}  // namespace tessera
