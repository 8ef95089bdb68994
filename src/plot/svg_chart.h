#pragma once
#include <span>
#include <string>

#include "plot/series.h"

namespace tessera {

// Of an SVG image, in its pixels.
struct ChartSize {
  double width = 0, height = 0;
};
ChartSize chart_size(std::span<const Panel> panels);

// The panels below one another as an SVG image of 900 pixels width, light or dark as the viewer
// prefers.
std::string svg_chart(std::span<const Panel> panels);

// The same in a page that loads nothing and fits a window of any width.
std::string html_chart(std::span<const Panel> panels, const std::string& title);

}  // namespace tessera
