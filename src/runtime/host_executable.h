#pragma once
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/plan_addresses.h"
#include "runtime/planned_program.h"

namespace tessera {

// Host memory for values, and its far tier.
class HostArenas final : public Arenas {
 public:
  HostArenas(HostBuffer near, HostBuffer far) : near_(std::move(near)), far_(std::move(far)) {}
  explicit HostArenas(const ProgramMemory& memory)
      : HostArenas(HostBuffer(memory.arena), HostBuffer(memory.far_arena)) {}
  int64_t bytes() const override { return near_.bytes() + far_.bytes(); }
  const HostBuffer& near() const { return near_; }
  const HostBuffer& far() const { return far_; }

 private:
  HostBuffer near_, far_;
};

// A program in host memory: a plan and its launches, walked by the thread that starts it. A run
// allocates nothing.
class HostExecutable final : public Executable {
 public:
  HostExecutable(Graph graph, Plan plan, std::vector<Launch> launches,
                 std::vector<Declined> declined = {});

  const Graph& graph() const override { return graph_; }
  const Plan* plan() const override { return &plan_; }
  ProgramMemory memory() const override { return {plan_.arena_bytes, plan_.far_arena_bytes}; }
  std::string kernel(size_t node) const override { return launches_[node].kernel; }
  std::string passed_over(size_t node) const override { return launches_[node].declined; }
  std::vector<Declined> declined() const override { return declined_; }
  // The launch of node i; without a function where the node is storage only.
  const Launch& launch(size_t i) const { return launches_[i]; }

  // Of HostState and HostArenas.
  void bind(State& state, Arenas& arenas) override;
  Pending start(const Arguments& arguments, const NodeObserver* observer = nullptr) override;

  bool add_listener(RunListener& listener) override {
    remove_listener(listener);
    listeners_.push_back(&listener);
    return true;
  }
  void remove_listener(RunListener& listener) override { std::erase(listeners_, &listener); }

  // start(), which returns when the run is done.
  void run(const Arguments& arguments, const NodeObserver* observer = nullptr) {
    start(arguments, observer);
  }
  // An output of the last run where it lies; valid until a program that shares the arena runs.
  const void* output(std::string_view name) const;

 private:
  void wait(int64_t run) override;
  void read_output(int64_t run, size_t output, std::span<std::byte> to) override;

  std::byte* address(Place place) const { return addresses_.at(place); }
  std::byte* address(Value v) const { return address(plan_.places[static_cast<size_t>(v.id)]); }
  void take(const Arguments& arguments);
  void walk(const NodeObserver* observer);
  void keep_small_outputs();

  Graph graph_;
  Plan plan_;
  std::vector<Launch> launches_;
  std::vector<Declined> declined_;
  bool bound_ = false;
  std::vector<RunListener*> listeners_;
  PlanAddresses addresses_;
  int64_t runs_ = 0;  // started so far, and done
  using Kept = std::array<std::byte, kSmallOutput>;
  std::array<std::vector<Kept>, kRunsKept> kept_;  // by run, by output
};

// A planned program (runtime/planned_program.h) in host memory.
std::unique_ptr<HostExecutable> compile(const Graph& graph, const KernelTable& table,
                                        const PlanOptions& options = {});

}  // namespace tessera
