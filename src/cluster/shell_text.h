#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// A word as a POSIX shell reads it back: in single quotes unless it needs none.
std::string shell_word(std::string_view word);
// Several of them, with blanks between.
std::string shell_words(std::span<const std::string> words);

}  // namespace tessera
