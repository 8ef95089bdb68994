#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace tessera {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

// Text of which some parts come from a template, and the rest from data: only in the former are the
// names of special tokens those tokens.
struct MarkedText {
  std::string_view text;
  std::span<const TextRange> markup;  // ascending, apart from each other
  bool begins = true;  // false: more text stands before, which is encoded by another call
};

// A part of a text that was encoded by itself: an added token, or what stands between two.
struct EncodedRun {
  TextRange text;      // of a token its name, without the white space that it swallows
  size_t ids_end = 0;  // its ids end there, and begin where those of the run before end
  bool added = false;  // one added token
};

}  // namespace tessera
