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

// A program ready to run: a plan and its launches. Allocates no tensor memory after bind().
class Executable {
 public:
  Executable(Graph graph, Plan plan, std::vector<Launch> launches)
      : graph_(std::move(graph)), plan_(std::move(plan)), launches_(std::move(launches)) {}

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  // The launch of node i; without a function where the node is storage only.
  const Launch& launch(size_t i) const { return launches_[i]; }

  // Declares the program's slots in the state.
  void declare_state(State& state) const;
  // Bytes of each of them.
  std::map<std::string, int64_t> state_bytes() const;
  // Fixes addresses. The arenas must hold plan().arena_bytes and plan().far_arena_bytes; all must
  // outlive the executable. Programs may share them: nothing in an arena outlives a run but what
  // output() points to.
  void bind(State& state, HostBuffer& arena, const HostBuffer& far_arena = {});

  // Runs with the given arguments, one address for each argument of the graph.
  void run(const std::map<std::string, const void*>& arguments,
           const NodeObserver* observer = nullptr);

  // An output of the last run; valid until a program that shares the arena runs.
  const void* output(const std::string& name) const;
  template <class T>
  T scalar(const std::string& name) const {
    return *static_cast<const T*>(output(name));
  }

 private:
  std::byte* address(Place place) const;

  Graph graph_;
  Plan plan_;
  std::vector<Launch> launches_;
  std::vector<std::byte*> storage_;               // address of each storage
  std::vector<std::vector<const void*>> inputs_;  // by node
  std::vector<std::vector<void*>> outputs_;
  std::vector<void*> workspaces_;
  std::map<std::string, const void*> bound_arguments_;
};

// Readies a graph for the kernels of a table: what no kernel takes is decomposed, kernels are
// prepared, the plan is made and verified. UserError for a primitive without a kernel.
std::unique_ptr<Executable> compile(const Graph& graph, const KernelTable& table,
                                    const PlanOptions& options = {});

}  // namespace tessera
