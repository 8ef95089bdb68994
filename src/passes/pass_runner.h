#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// One transformation of a graph, with the name by which it is timed, dumped and switched off.
struct Pass {
  std::string name;
  std::function<Graph(const Graph&)> run;
};

// Graphs as text (ir/printer.h) or as pages (passes/graph_page.h).
enum class DumpFormat : uint8_t { kText, kHtml };

// Sees every pass that ran: `before` and `after` are valid during the call.
struct PassEvent {
  const std::string& program;
  const Pass& pass;
  const Graph &before, &after;
  double seconds = 0;
};
using PassObserver = std::function<void(const PassEvent& event)>;

struct PassOptions {
  std::vector<std::string> disabled;
  std::filesystem::path dump_directory;  // empty: no dumps
  DumpFormat dump_format = DumpFormat::kText;
  PassObserver observer = {};
};

struct PassTiming {
  std::string pass;
  double seconds = 0;
  size_t nodes_before = 0, nodes_after = 0;
};

// Every pass of every program without which the result stays the same: what --disable_pass may
// name. A program that does not have the pass runs as it is.
inline constexpr std::string_view kOptionalPasses[] = {"canonicalize", "overlap"};

// Runs passes in the given order, verifying the graph after each. Dumps "PROGRAM.NN_pass.txt" or
// ".html" into the dump directory; a page also shows what the pass changed. UserError for a
// disabled name that is no pass of any program or not optional.
class PassRunner {
 public:
  explicit PassRunner(PassOptions options) : options_(std::move(options)) {}
  Graph run(const std::string& program, const Graph& graph, const std::vector<Pass>& passes);
  const std::vector<PassTiming>& timings() const { return timings_; }

 private:
  void dump(const std::string& program, const std::string& pass, const Graph& graph,
            const Graph* before);

  PassOptions options_;
  std::vector<PassTiming> timings_;
  int dumped_ = 0;
};

}  // namespace tessera
