#pragma once
#include <memory>

#include "backends/cpu/cpu_kernels.h"
#include "runtime/backend.h"
#include "runtime/communicator.h"
#include "runtime/host_executable.h"

namespace tessera::cpu {

// The CPU as a device: a thread pool, an instruction set and the kernels for it. Results depend on
// the instruction set, never on the number of threads.
class CpuBackend final : public Backend {
 public:
  // `communicator`: to the other ranks of the job; without one, programs of several ranks can be
  // planned but not run. Must live longer.
  CpuBackend(int threads, Isa isa, Communicator* communicator = nullptr);
  std::unique_ptr<Executable> compile(const Graph& graph) override { return compile_host(graph); }
  std::unique_ptr<HostExecutable> compile_host(const Graph& graph,
                                               const PlanOptions& options = {}) const {
    return tessera::compile(graph, table_, options);
  }
  std::unique_ptr<State> make_state() override { return std::make_unique<HostState>(); }
  // What exchanges read is memory of the communicator, so that peers on this host read it there.
  std::unique_ptr<Arenas> make_arenas(const ProgramMemory& memory) override;
  ThreadPool& pool() { return pool_; }
  Isa isa() const { return isa_; }
  const KernelTable& kernels() const { return table_; }

 private:
  ThreadPool pool_;
  Isa isa_;
  Communicator* communicator_;
  KernelTable table_;
};

}  // namespace tessera::cpu
