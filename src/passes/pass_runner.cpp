#include "passes/pass_runner.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/graph_page.h"

namespace tessera {

namespace {

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_disabled(const std::vector<std::string>& disabled, const std::vector<Pass>& passes) {
  for (const std::string& name : disabled) {
    if (contains(kOptionalPasses, name)) continue;
    bool needed =
        std::any_of(passes.begin(), passes.end(), [&](const Pass& p) { return p.name == name; });
    throw UserError(cat("--disable_pass: ", needed ? "" : "there is no pass ", "'", name, "'",
                        needed ? " is needed for a right result" : "",
                        "; can be disabled: ", join(kOptionalPasses, ", ")));
  }
}

}  // namespace

Graph PassRunner::run(const std::string& program, const Graph& graph,
                      const std::vector<Pass>& passes) {
  check_disabled(options_.disabled, passes);
  verify(graph, cat(program, " as built"));
  dump(program, "built", graph, nullptr);
  Graph current = graph;
  for (const Pass& pass : passes) {
    if (std::find(options_.disabled.begin(), options_.disabled.end(), pass.name) !=
        options_.disabled.end())
      continue;
    double start = monotonic_seconds();
    Graph next = pass.run(current);
    const double seconds = monotonic_seconds() - start;
    timings_.push_back(
        {cat(program, ".", pass.name), seconds, current.nodes().size(), next.nodes().size()});
    verify(next, cat(program, " after ", pass.name));
    if (options_.observer) options_.observer({program, pass, current, next, seconds});
    dump(program, pass.name, next, &current);
    current = std::move(next);
  }
  return current;
}

void PassRunner::dump(const std::string& program, const std::string& pass, const Graph& graph,
                      const Graph* before) {
  if (options_.dump_directory.empty()) return;
  make_directories(options_.dump_directory);
  const bool page = options_.dump_format == DumpFormat::kHtml;
  const std::string name =
      cat(program, ".", format("%02d", dumped_++), "_", pass, page ? ".html" : ".txt");
  write_file_atomic(
      options_.dump_directory / name,
      page ? graph_page(cat(program, " after ", pass), graph, before) : to_string(graph));
}

}  // namespace tessera
