#pragma once
#include <cstddef>
#include <string_view>

namespace tessera {

// Cuts text into the pieces inside which BPE merges, exactly as GPT-2's pattern does:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// with the kinds of character_kinds.h. The pieces of a text, joined, are the text.

// The end of the piece that begins at `begin`, which must be a piece boundary below text.size().
size_t gpt2_piece_end(std::string_view text, size_t begin);

// A piece boundary at or behind `position`, as near as can be told without reading from the start:
// long texts are cut there to be split in parallel. text.size() when there is none.
size_t gpt2_piece_boundary(std::string_view text, size_t position);

}  // namespace tessera
