#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The printable spelling of bytes in byte-level BPE files (GPT-2, encoder.py `bytes_to_unicode`):
// bytes 33-126, 161-172 and 174-255 are the code points of the same number, the other 68 are, in
// order, U+0100 to U+0143. Spelled as UTF-8: a space is "Ġ".
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that `spelling` stands for; nothing when it holds a character outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view spelling);

// All bytes, ordered by the code point of their letter: '!' first, U+00AD last. Files list the
// bytes in this order.
const std::array<uint8_t, 256>& byte_alphabet_order();

}  // namespace tessera
