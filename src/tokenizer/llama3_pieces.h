#pragma once
#include <cstddef>
#include <string_view>

namespace tessera {

// Cuts text into the pieces inside which BPE merges, exactly as Llama-3's pattern does:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
//
// with the kinds of character_kinds.h; of letters beyond ASCII only U+017F folds to one of the
// contractions' letters. Qwen2's pattern differs in taking one digit at a time: `digits` is 3 or 1.
// The pieces of a text, joined, are the text.

// The end of the piece that begins at `begin`, which must be a piece boundary below text.size().
size_t llama3_piece_end(std::string_view text, size_t begin, int digits);

}  // namespace tessera
