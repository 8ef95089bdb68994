#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/kernel_table.h"
#include "runtime/memory.h"

namespace tessera {

// Sees every node right after it ran, with the addresses of its outputs: for hashes, for the search
// of non-finite values and for timings.
struct NodeEvent {
  const Graph& graph;
  const Node& node;
  std::span<void* const> outputs;
  double seconds;
};
using NodeObserver = std::function<void(const NodeEvent& event)>;

using Arguments = std::map<std::string, const void*>;

// Composites that run as their definition because every kernel declined them: such a definition
// may take memory and time of another order.
struct Declined {
  std::string op;
  std::string reasons;  // of all kernels, in one line
  int64_t nodes = 0;
  friend bool operator==(const Declined&, const Declined&) = default;
};

// A program ready to run: a plan and its launches. A run allocates nothing.
class Executable {
 public:
  Executable(Graph graph, Plan plan, std::vector<Launch> launches,
             std::vector<Declined> declined = {})
      : graph_(std::move(graph)),
        plan_(std::move(plan)),
        launches_(std::move(launches)),
        declined_(std::move(declined)) {}

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  // The launch of node i; without a function where the node is storage only.
  const Launch& launch(size_t i) const { return launches_[i]; }
  // One entry an op and its reasons.
  const std::vector<Declined>& declined() const { return declined_; }

  // Declares the program's slots in the state.
  void declare_state(State& state) const;
  // Bytes of each of them.
  std::map<std::string, int64_t> state_bytes() const;
  // Fixes all addresses, arguments included. The arenas must hold plan().arena_bytes and
  // plan().far_arena_bytes; all must outlive the executable. Programs may share them: nothing in an
  // arena outlives a run but what output() points to.
  void bind(State& state, HostBuffer& arena, const HostBuffer& far_arena = {});

  // Runs with the given arguments, one address outside the arenas for each argument of the graph:
  // its content is copied to the argument's place.
  void run(const Arguments& arguments, const NodeObserver* observer = nullptr);

  // An output of the last run; valid until a program that shares the arena runs.
  const void* output(std::string_view name) const;
  template <class T>
  T scalar(std::string_view name) const {
    return *static_cast<const T*>(output(name));
  }

 private:
  std::byte* address(Place place) const;
  std::byte* address(Value v) const { return address(plan_.places[static_cast<size_t>(v.id)]); }
  void take(const Arguments& arguments);

  Graph graph_;
  Plan plan_;
  std::vector<Launch> launches_;
  std::vector<Declined> declined_;
  bool bound_ = false;
  std::vector<std::byte*> storage_;     // address of each storage
  std::vector<const void*> inputs_;     // of all nodes, one after another
  std::vector<void*> outputs_;          // likewise
  std::vector<LaunchArguments> ready_;  // by node; views of the two above
};

// Counts further nodes of an op that was declined for the same reasons, or adds an entry.
void add_declined(std::vector<Declined>& list, const Declined& more);
// "attention x 12: heads of 20 are no multiple of 16".
std::string to_string(const Declined& declined);

// Readies a graph for the kernels of a table: what no kernel takes is decomposed, kernels are
// prepared, the plan is made and verified. UserError for a primitive without a kernel.
std::unique_ptr<Executable> compile(const Graph& graph, const KernelTable& table,
                                    const PlanOptions& options = {});

}  // namespace tessera
