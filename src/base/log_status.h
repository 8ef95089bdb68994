#pragma once
#include <string>
#include <vector>

namespace tessera {

// Whether standard error is a terminal that can be written over.
bool log_is_terminal();
// Columns of the terminal's window now; 80 where it does not tell.
int log_columns();

// Lines that stay below the log while lines of it scroll past above them; to be given again when
// they change. No line: none stays. For terminals only. `lines` are one row each, of characters
// that take one column; a window that becomes narrower may fold them, which is reckoned with.
void set_log_status(std::vector<std::string> lines);

}  // namespace tessera
