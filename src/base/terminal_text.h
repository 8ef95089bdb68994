#pragma once
#include <string>
#include <string_view>

namespace tessera {

// For terminals, which obey control characters: all but tabs and ends of lines as \xNN, bytes that
// are one by themselves (C1, no UTF-8) too.
std::string without_controls(std::string_view text);

// What ends a process, or its job: the line "tessera: TEXT" on standard error, without controls.
void print_error(std::string_view text);

}  // namespace tessera
