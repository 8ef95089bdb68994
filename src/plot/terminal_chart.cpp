#include "plot/terminal_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/text.h"
#include "plot/axis.h"

namespace tessera {
namespace {

constexpr int kAnsiColours[] = {36, 33, 35, 32, 34, 31};  // ANSI foregrounds

// Two columns and four rows of dots in each character.
class Dots {
 public:
  Dots(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns * rows)) {}

  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }

  void set(int x, int y, size_t owner) {
    if (x < 0 || x >= width() || y < 0 || y >= height()) return;
    // The bits of U+2800 by row, left and right.
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    Cell& cell = cells_[static_cast<size_t>(y / 4 * columns_ + x / 2)];
    cell.bits |= kBits[y % 4][x % 2];
    cell.owner = owner;
  }
  // A straight line; where `dash` > 1 only one of so many dots.
  void line(double x0, double y0, double x1, double y1, size_t owner, int dash) {
    const int steps = static_cast<int>(std::ceil(std::max(std::fabs(x1 - x0), std::fabs(y1 - y0))));
    for (int i = 0; i <= steps; ++i) {
      const double t = steps == 0 ? 0 : static_cast<double>(i) / steps;
      const int x = static_cast<int>(std::lround(x0 + t * (x1 - x0)));
      if (dash > 1 && x / dash % 2 == 1) continue;
      set(x, static_cast<int>(std::lround(y0 + t * (y1 - y0))), owner);
    }
  }
  std::string row(int number, bool colour) const {
    std::string text;
    int shown = -1;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[static_cast<size_t>(number * columns_ + column)];
      if (cell.bits == 0) {
        text += ' ';
        continue;
      }
      const int wanted = kAnsiColours[cell.owner % std::size(kAnsiColours)];
      if (colour && shown != wanted) text += cat("\x1b[", wanted, "m");
      shown = wanted;
      // U+2800 + bits in UTF-8.
      text += '\xe2';
      text += static_cast<char>(0xa0 | cell.bits >> 6);
      text += static_cast<char>(0x80 | (cell.bits & 0x3f));
    }
    if (colour && shown >= 0) text += "\x1b[0m";
    return text;
  }

 private:
  struct Cell {
    uint8_t bits = 0;
    size_t owner = 0;
  };
  int columns_, rows_;
  std::vector<Cell> cells_;
};

std::string spaces(size_t count) { return std::string(count, ' '); }

}  // namespace

std::string terminal_chart(const Panel& panel, int columns, int rows, bool colour) {
  rows = std::max(rows, 3);
  const Axis y = axis_around(range_of_values(panel), std::max(2, rows / 4));
  size_t margin = 0;
  for (const double mark : y.marks) margin = std::max(margin, y.label(mark).size());
  const int width = std::max(10, columns - static_cast<int>(margin) - 2);
  const Range steps = range_of_steps(panel);
  Axis x;  // from the first to the last step, whatever the marks
  x.range = steps.high > steps.low ? steps : Range{steps.low - 1, steps.high + 1};

  Dots dots(width, rows);
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const Series curve = thinned(panel.series[s], static_cast<size_t>(dots.width()));
    bool drawn = false;
    double x0 = 0, y0 = 0;
    for (size_t i = 0; i < curve.steps.size(); ++i) {
      if (!std::isfinite(curve.values[i])) {
        drawn = false;
        continue;
      }
      const double x1 = x.place(curve.steps[i]) * (dots.width() - 1);
      const double y1 = (1 - y.place(curve.values[i])) * (dots.height() - 1);
      dots.line(drawn ? x0 : x1, drawn ? y0 : y1, x1, y1, s,
                colour || s == 0 ? 1 : 1 + static_cast<int>(s));
      x0 = x1;
      y0 = y1;
      drawn = true;
    }
  }

  std::string text = cat(spaces(margin + 2), panel.title, "\n");
  for (int row = 0; row < rows; ++row) {
    std::string label;
    for (const double mark : y.marks) {
      if (std::lround((1 - y.place(mark)) * (dots.height() - 1)) / 4 == row) label = y.label(mark);
    }
    text += cat(spaces(margin - label.size()), label, label.empty() ? " │" : " ┤",
                dots.row(row, colour), "\n");
  }
  text += cat(spaces(margin), " └");
  for (int column = 0; column < width; ++column) text += "─";
  const std::string first = format("%.0f", x.range.low), last = format("%.0f", x.range.high);
  const auto room = static_cast<size_t>(width);
  text += cat("\n", spaces(margin + 2), first,
              spaces(room > first.size() + last.size() ? room - first.size() - last.size() : 1),
              last, "\n");
  if (panel.series.size() < 2) return text;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    std::string line = s == 0 || colour ? "──" : "╌╌";
    if (s > 1 && !colour) {  // one dash as it is drawn, and the gap behind it
      const int dash = 1 + static_cast<int>(s);
      Dots key(dash, 1);
      key.line(0, 1, 2 * dash - 1, 1, s, dash);
      line = key.row(0, false);
    }
    text += colour ? cat(spaces(margin + 2), "\x1b[", kAnsiColours[s % std::size(kAnsiColours)],
                         "m", line, "\x1b[0m ", panel.series[s].name, "\n")
                   : cat(spaces(margin + 2), line, " ", panel.series[s].name, "\n");
  }
  return text;
}

}  // namespace tessera
