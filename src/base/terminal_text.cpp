#include "base/terminal_text.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace tessera {

std::string without_controls(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    const std::string_view character = text.substr(i, size);
    const bool whole =
        character.size() == size &&
        std::ranges::all_of(character.substr(1), [](char c) { return (c & 0xc0) == 0x80; });
    const bool second_set = byte == 0xc2 && whole && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    const bool control =
        size == 1 && (byte < 0x20 || (byte >= 0x7f && byte < 0xa0)) && byte != '\n' && byte != '\t';
    if (control || second_set) {
      shown += format("\\x%02x", static_cast<unsigned char>(character.back()));
    } else {
      shown += whole ? character : character.substr(0, 1);
    }
    i += whole ? size : 1;
  }
  return shown;
}

void print_error(std::string_view text) {
  std::fprintf(stderr, "tessera: %s\n", without_controls(text).c_str());
}

}  // namespace tessera
