#pragma once
#include <string>
#include <string_view>

#include "runtime/executable.h"

namespace tessera {

// The lines of a program and its instructions (ring_format.h), as rank `rank` runs it.
std::string program_lines(std::string_view name, const Executable& program, int rank);

// Fields of a line, apart by tabs; what would break the line is a blank.
std::string text_line(std::initializer_list<std::string> fields);

}  // namespace tessera
