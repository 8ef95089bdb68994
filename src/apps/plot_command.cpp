#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "plot/png_chart.h"
#include "plot/run_metrics.h"
#include "plot/svg_chart.h"
#include "plot/terminal_chart.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera plot RUN [RUN...] [OPTIONS]

Draws curves of runs over one another: in the terminal, or with --plot_file into an image (.svg, .png) or a page (.html).
RUN is the file that `tessera train --metrics_file FILE` wrote, also while it is written. Without --metrics these are loss
and validation_loss, together in one panel, learning_rate, gradient_norm and tokens_per_second.

Examples
  tessera plot metrics.jsonl
  tessera plot first.jsonl second.jsonl --smooth 0.9
  tessera plot metrics.jsonl --metrics loss mfu memory_bytes --plot_file curves.png
)";

constexpr int kColumnsWithoutTerminal = 100, kMostColumns = 160;
constexpr int kRows = 16, kLowRows = 6;  // of the first panel, of those below it

int columns_of_terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kColumnsWithoutTerminal;
  return std::min<int>(size.ws_col, kMostColumns);
}

struct Run {
  std::string name;
  RunMetrics metrics;
};

bool any_has(const std::vector<Run>& runs, const std::string& key) {
  return std::ranges::any_of(runs,
                             [&](const Run& run) { return run.metrics.keys().contains(key); });
}

Panel panel_of(const std::vector<Run>& runs, const std::string& key, double smooth) {
  Panel panel{key, {}};
  auto add = [&](const Run& run, const std::string& wanted, double factor) {
    Series series = smoothed(run.metrics.series(wanted), factor);
    if (series.steps.empty()) return;
    series.name = runs.size() > 1 ? cat(run.name, ": ", wanted) : wanted;
    panel.series.push_back(std::move(series));
  };
  for (const Run& run : runs) {
    add(run, key, smooth);
    // Seldom, and already a mean over much text.
    if (key == "loss") add(run, "validation_loss", 0);
  }
  if (!panel.series.empty()) return panel;
  if (runs[0].metrics.keys().empty())
    throw UserError(cat("'", runs[0].name, "' has no line yet: there is nothing to plot"));
  std::vector<std::string> there(runs[0].metrics.keys().begin(), runs[0].metrics.keys().end());
  throw UserError(
      cat("--metrics ", key, ": '", runs[0].name, "' has none; it has ", join(there, ", ")));
}

}  // namespace

int plot_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kPlot);
  if (parsed.help) return print_help(parsed, kHelp);
  if (parsed.words.empty())
    throw UsageError("plot takes files of --metrics_file: tessera plot metrics.jsonl");
  const RunConfig& config = parsed.config;
  std::vector<std::string> keys = config.metrics;
  if (keys.empty()) keys = {"loss", "learning_rate", "gradient_norm", "tokens_per_second"};
  std::vector<std::string> wanted = keys;
  wanted.push_back("validation_loss");
  std::vector<Run> runs;
  for (const std::string& word : parsed.words)
    runs.push_back({word, RunMetrics(ReadFile(word), wanted)});
  std::vector<Panel> panels;
  for (const std::string& key : keys) {
    if (config.metrics.empty() && key != "loss" && !any_has(runs, key)) continue;
    panels.push_back(panel_of(runs, key, config.smooth));
  }
  const std::string& file = config.plot_file;
  if (file.empty()) {
    const bool colour = ::isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR");
    for (const Panel& panel : panels) {
      const int rows = &panel == panels.data() ? kRows : kLowRows;
      std::fputs(terminal_chart(panel, columns_of_terminal(), rows, colour).c_str(), stdout);
    }
  } else if (file.ends_with(".svg")) {
    write_file_atomic(file, svg_chart(panels));
  } else if (file.ends_with(".png")) {
    write_file_atomic(file, png_chart(panels));
  } else if (file.ends_with(".html")) {
    write_file_atomic(file, html_chart(panels, join(parsed.words, ", ")));
  } else {
    throw UsageError(cat("--plot_file '", file, "' is to end in .svg, .png or .html"));
  }
  return 0;
}

}  // namespace tessera
