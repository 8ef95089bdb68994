#include <cstdio>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "profile/profile_page.h"
#include "profile/profile_report.h"
#include "profile/trace_merge.h"

namespace tessera {
namespace {

constexpr const char* kHelp =
    R"(Usage: tessera profile report TRACES... [--json] [--rows_shown N] [--html_file PAGE]
       tessera profile merge TRACES... [--trace_file FILE]
       tessera profile diff A B [--json] [--rows_shown N]

What runs with --use_profiler recorded. TRACES are the directory of --profile_dir, or trace files of it; every trace can
also be opened as it is in Perfetto (ui.perfetto.dev) or chrome://tracing.

report  where the time of a step goes: by phase, op, layer and rank, who waited for whom, exchanges, what fills memory
        at its peak. PAGE shows timeline, flame view and memory, and loads nothing.
merge   one trace of all ranks, by one clock, with an arrow from who came last to an exchange to who waited there.
diff    what takes longer or shorter in a step of B, by phase, op and layer. A and B are directories or files.

Examples
  tessera train ... --use_profiler 1
  tessera profile report profile_traces
  tessera profile report profile_traces --html_file profile.html
  tessera profile merge profile_traces --trace_file merged.json
  tessera profile diff before/profile_traces after/profile_traces

Options
)";

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return 0;
}

ProfileReport report_of(std::span<const std::string> paths) {
  return profile_report(read_traces(paths));
}

}  // namespace

int profile_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kProfile);
  if (parsed.help) return print_help(parsed, kHelp);
  const RunConfig& config = parsed.config;
  const std::string action = parsed.words.empty() ? "" : parsed.words[0];
  const std::span<const std::string> paths =
      std::span(parsed.words).subspan(parsed.words.empty() ? 0 : 1);
  const auto rows = static_cast<size_t>(config.rows_shown);
  if (action == "report" && !paths.empty()) {
    const std::vector<RankTrace> traces = read_traces(paths);
    const ProfileReport report = profile_report(traces);
    if (!config.html_file.empty())
      write_file_atomic(config.html_file, profile_page(traces, report));
    return print(config.json ? report_json(report) : report_text(report, rows));
  }
  if (action == "merge" && !paths.empty()) {
    const MergedTraces merged = merge_traces(paths, config.trace_file);
    return print(cat("Merged ", merged.ranks, " ranks, with ", merged.arrows, " arrows, into ",
                     config.trace_file, "\n"));
  }
  if (action == "diff" && paths.size() == 2) {
    const ProfileReport a = report_of(paths.subspan(0, 1)), b = report_of(paths.subspan(1, 1));
    return print(config.json ? diff_json(a, b) : diff_text(a, b, rows));
  }
  throw UsageError(
      "profile takes a word and what it is about: tessera profile report TRACES, merge TRACES, "
      "diff A B");
}

}  // namespace tessera
