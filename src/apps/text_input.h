#pragma once
#include <cstdint>
#include <string>

namespace tessera {

// Text that the user names on the command line: all of a file, a pipe, or for "-" of standard
// input. UserError when it cannot be read or has more than `limit` bytes.
std::string read_text_input(const std::string& path, size_t limit = SIZE_MAX);

// "'PATH'", or "standard input".
std::string name_of_text_input(const std::string& path);

}  // namespace tessera
