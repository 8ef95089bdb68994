#pragma once
#include <string>

#include "plot/series.h"

namespace tessera {

// The panel in at most `columns` columns and about `rows` rows of characters: title, curves in dots
// of Braille, marks, and where there are several curves a line for each that says which it is. With
// `colour` each has one (ANSI escape sequences); else the second and third are dashed. UTF-8, ends
// with a line feed.
std::string terminal_chart(const Panel& panel, int columns, int rows, bool colour);

}  // namespace tessera
