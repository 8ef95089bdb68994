#include "tokenizer/byte_alphabet.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int kLetters = 0x144;  // one past the highest code point used

struct Alphabet {
  std::array<uint16_t, 256> letter{};    // byte to code point
  std::array<int16_t, kLetters> byte{};  // code point to byte, -1 if none
  std::array<uint8_t, 256> order{};
};

const Alphabet& alphabet() {
  static const Alphabet table = [] {
    Alphabet a;
    a.byte.fill(-1);
    uint16_t next = 0x100;
    for (size_t b = 0; b < 256; ++b) {
      bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      a.letter[b] = printable ? static_cast<uint16_t>(b) : next++;
      a.byte[a.letter[b]] = static_cast<int16_t>(b);
      a.order[b] = static_cast<uint8_t>(b);
    }
    std::ranges::sort(a.order, {}, [&](uint8_t b) { return a.letter[b]; });
    return a;
  }();
  return table;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (char c : bytes) {
    uint16_t letter = alphabet().letter[static_cast<unsigned char>(c)];
    if (letter < 0x80) {
      spelling.push_back(static_cast<char>(letter));
    } else {
      spelling.push_back(static_cast<char>(0xC0 | (letter >> 6)));
      spelling.push_back(static_cast<char>(0x80 | (letter & 0x3F)));
    }
  }
  return spelling;
}

std::optional<std::string> from_byte_alphabet(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size(); ++i) {
    int letter = static_cast<unsigned char>(spelling[i]);
    if (letter >= 0x80) {  // all letters are below U+0800: two bytes
      if ((letter & 0xE0) != 0xC0 || i + 1 == spelling.size()) return std::nullopt;
      int second = static_cast<unsigned char>(spelling[++i]);
      if ((second & 0xC0) != 0x80) return std::nullopt;
      letter = ((letter & 0x1F) << 6) | (second & 0x3F);
      if (letter < 0x80) return std::nullopt;
    }
    if (letter >= kLetters || alphabet().byte[static_cast<size_t>(letter)] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte[static_cast<size_t>(letter)]));
  }
  return bytes;
}

const std::array<uint8_t, 256>& byte_alphabet_order() { return alphabet().order; }

}  // namespace tessera
