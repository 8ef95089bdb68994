#pragma once
#include <string>

namespace tessera {

// Text that the user names on the command line: all of a file, a pipe, or for "-" of standard
// input. UserError when it cannot be read.
std::string read_text_input(const std::string& path);

}  // namespace tessera
