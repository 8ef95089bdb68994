#pragma once
#include <span>
#include <string>

#include "plot/series.h"

namespace tessera {

// svg_chart() on white as a PNG image, two pixels for each of its own, drawn by librsvg, which is
// loaded here. UserError where this machine has none.
std::string png_chart(std::span<const Panel> panels);

}  // namespace tessera
