#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backends/xla/stablehlo.h"
#include "backends/xla/whole_run_listeners.h"
#include "backends/xla/xla_backend.h"

namespace tessera::xla {

// Slots in memory that programs of XLA update in place.
class XlaState final : public State {
 public:
  explicit XlaState(RankMemory& memory) : memory_(memory) {}
  std::byte* data(const std::string& slot) const;
  const std::byte* host_bytes(const std::string& slot) const override { return data(slot); }

 private:
  void allocate(const std::string& slot, int64_t bytes) override;
  void copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const override;
  void copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) override;

  RankMemory& memory_;
  std::map<std::string, std::byte*> slots_;
};

class XlaExecutable final : public Executable {
 public:
  // Compiles, on rank 0.
  XlaExecutable(XlaBackend& backend, Graph graph);

  const Graph& graph() const override { return graph_; }
  // Of each rank; rank 0's process has that of all.
  ProgramMemory memory() const override { return {.arena = temporaries_, .exact = false}; }
  void bind(State& state, Arenas& arenas) override;
  Pending start(const Arguments& arguments, const NodeObserver* observer) override;
  bool add_listener(RunListener& listener) override { return listeners_.add(listener); }
  void remove_listener(RunListener& listener) override { listeners_.remove(listener); }

 private:
  void wait(int64_t run) override;
  void read_output(int64_t run, size_t output, std::span<std::byte> to) override;
  void take(const Arguments& arguments);
  void run_for_all();

  XlaBackend& backend_;
  Graph graph_;
  StableHlo program_;
  int64_t temporaries_ = 0;
  std::unique_ptr<CompiledProgram> compiled_;  // of rank 0
  WholeRunListeners listeners_;
  int64_t runs_ = 0;
  // Of this rank: where the program's arguments lie, and what it gives, by run.
  std::vector<std::byte*> arguments_;
  std::vector<std::byte*> outputs_[kRunsKept];
  // On rank 0 the same of every rank.
  struct Rank {
    std::vector<std::byte*> arguments, outputs[kRunsKept];
  };
  std::vector<Rank> ranks_;
};

}  // namespace tessera::xla
