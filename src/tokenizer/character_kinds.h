#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

// What the patterns of pre-tokenizers tell apart: \p{L}, \p{N}, \s and the rest.
enum class CharacterKind : uint8_t { kLetter, kNumber, kSpace, kOther };

// By the categories of Unicode 16.0; \s is White_Space.
CharacterKind kind_of(int32_t code_point);

inline constexpr std::array<CharacterKind, 128> kAsciiKinds = [] {
  std::array<CharacterKind, 128> kinds{};
  for (size_t c = 0; c < 128; ++c) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool number = c >= '0' && c <= '9', space = c == ' ' || (c >= '\t' && c <= '\r');
    kinds[c] = letter   ? CharacterKind::kLetter
               : number ? CharacterKind::kNumber
               : space  ? CharacterKind::kSpace
                        : CharacterKind::kOther;
  }
  return kinds;
}();

struct Character {
  CharacterKind kind;
  size_t size;  // bytes
};

// Reads a text character by character. A byte that is not part of valid UTF-8 is one character of
// kind kOther.
class CharacterReader {
 public:
  explicit CharacterReader(std::string_view text) : text_(text) {}

  Character at(size_t position) const {
    auto byte = static_cast<unsigned char>(text_[position]);
    return byte < 128 ? Character{kAsciiKinds[byte], 1} : beyond_ascii(position);
  }

  // The end of the run of `kind` from `position` on.
  size_t run_end(size_t position, CharacterKind kind) const {
    while (position < text_.size()) {
      Character next = at(position);
      if (next.kind != kind) break;
      position += next.size;
    }
    return position;
  }

  // `\s+(?!\S)|\s+` from the white space at `position` on: a run before other text leaves it its
  // last character.
  size_t space_end(size_t position) const {
    size_t last = position, end = position + at(position).size;
    while (end < text_.size()) {
      Character next = at(end);
      if (next.kind != CharacterKind::kSpace) return last == position ? end : last;
      last = end;
      end += next.size;
    }
    return end;
  }

 private:
  Character beyond_ascii(size_t position) const;

  std::string_view text_;
};

}  // namespace tessera
