#include "plot/svg_chart.h"

#include <cmath>

#include "base/markup.h"
#include "base/text.h"
#include "plot/axis.h"

namespace tessera {
namespace {

constexpr double kWidth = 900, kHeight = 300;                       // of a panel
constexpr double kLeft = 70, kRight = 20, kTop = 34, kBottom = 36;  // around its curves
constexpr double kLegendLine = 18;
constexpr size_t kColumns = 800;
constexpr const char* kColours[] = {"#1f77b4", "#e8710a", "#2ca02c",
                                    "#c0399f", "#8c6d31", "#d62728"};
constexpr const char* kStyle = R"(
  text { font: 12px system-ui, sans-serif; fill: #333 }
  .title { font-weight: 600; font-size: 14px }
  .grid { stroke: #ddd }
  .curve { fill: none; stroke-width: 1.5; stroke-linejoin: round }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #444 } }
)";

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const char* style = "") {
  return cat("<text x=\"", format("%.1f", x), "\" y=\"", format("%.1f", y), "\" text-anchor=\"",
             anchor, "\"", style, ">", escape_markup(text), "</text>\n");
}

std::string grid(double x0, double y0, double x1, double y1) {
  return format("<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x0, y0,
                x1, y1);
}

double height_of(const Panel& panel) {
  return kHeight +
         (panel.series.size() > 1 ? kLegendLine * static_cast<double>(panel.series.size()) : 0);
}

std::string draw(const Panel& panel, double top) {
  const double right = kWidth - kRight, begin = top + kTop, end = top + kHeight - kBottom;
  const Axis x = axis_around(range_of_steps(panel), 8), y = axis_around(range_of_values(panel), 5);
  auto across = [&](double step) { return kLeft + x.place(step) * (right - kLeft); };
  auto down = [&](double value) { return end - y.place(value) * (end - begin); };
  std::string text = label(kLeft, top + 20, "start", panel.title, " class=\"title\"");
  for (const double mark : y.marks) {
    text += grid(kLeft, down(mark), right, down(mark));
    text += label(kLeft - 8, down(mark) + 4, "end", y.label(mark));
  }
  for (const double mark : x.marks) {
    text += grid(across(mark), begin, across(mark), end);
    text += label(across(mark), end + 18, "middle", x.label(mark));
  }
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const Series curve = thinned(panel.series[s], kColumns);
    const char* colour = kColours[s % std::size(kColours)];
    std::string path;
    bool drawn = false;
    for (size_t i = 0; i < curve.steps.size(); ++i) {
      const bool is_number = std::isfinite(curve.values[i]);
      if (is_number)
        path +=
            format("%c%.1f %.1f", drawn ? 'L' : 'M', across(curve.steps[i]), down(curve.values[i]));
      drawn = is_number;
    }
    text += cat("<path class=\"curve\" stroke=\"", colour, "\" d=\"", path, "\"><title>",
                escape_markup(panel.series[s].name), "</title></path>\n");
    if (panel.series.size() < 2) continue;
    const double line = top + kHeight + kLegendLine * static_cast<double>(s);
    text += cat("<path class=\"curve\" stroke=\"", colour, "\" d=\"",
                format("M%.1f %.1fh24", kLeft, line - 4), "\"/>\n",
                label(kLeft + 32, line, "start", panel.series[s].name));
  }
  return text;
}

}  // namespace

ChartSize chart_size(std::span<const Panel> panels) {
  ChartSize size{kWidth, 0};
  for (const Panel& panel : panels) size.height += height_of(panel);
  return size;
}

std::string svg_chart(std::span<const Panel> panels) {
  double top = 0;
  std::string content;
  for (const Panel& panel : panels) {
    content += draw(panel, top);
    top += height_of(panel);
  }
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", top,
             "\" width=\"", kWidth, "\" role=\"img\">\n<style>", kStyle, "</style>\n", content,
             "</svg>\n");
}

std::string html_chart(std::span<const Panel> panels, const std::string& title) {
  return cat(page_head(title),
             "<style>body { margin: 1em } svg { max-width: 100%; height: auto }</style>\n"
             "</head><body>\n",
             svg_chart(panels), "</body></html>\n");
}

}  // namespace tessera
