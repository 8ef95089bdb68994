#include "passes/pass_runner.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace tessera {

Graph PassRunner::run(const std::string& program, const Graph& graph,
                      const std::vector<Pass>& passes) {
  for (const std::string& name : options_.disabled) {
    auto pass =
        std::find_if(passes.begin(), passes.end(), [&](const Pass& p) { return p.name == name; });
    std::vector<std::string> names;
    for (const Pass& p : passes) {
      if (p.optional) names.push_back(p.name);
    }
    if (pass == passes.end())
      throw UserError(cat("--disable_pass: there is no pass '", name,
                          "'; can be disabled: ", join(names, ", ")));
    if (!pass->optional)
      throw UserError(cat("--disable_pass: '", name,
                          "' is needed for a right result; can be disabled: ", join(names, ", ")));
  }
  verify(graph, cat(program, " as built"));
  dump(program, "built", graph);
  Graph current = graph;
  for (const Pass& pass : passes) {
    if (std::find(options_.disabled.begin(), options_.disabled.end(), pass.name) !=
        options_.disabled.end())
      continue;
    double start = monotonic_seconds();
    Graph next = pass.run(current);
    timings_.push_back({cat(program, ".", pass.name), monotonic_seconds() - start,
                        current.nodes().size(), next.nodes().size()});
    verify(next, cat(program, " after ", pass.name));
    dump(program, pass.name, next);
    current = std::move(next);
  }
  return current;
}

void PassRunner::dump(const std::string& program, const std::string& pass, const Graph& graph) {
  if (options_.dump_directory.empty()) return;
  make_directories(options_.dump_directory);
  write_file_atomic(
      options_.dump_directory / cat(program, ".", format("%02d", dumped_++), "_", pass, ".txt"),
      to_string(graph));
}

}  // namespace tessera
