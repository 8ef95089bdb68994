#pragma once
#include <memory>

#include "backends/cpu/cpu_kernels.h"
#include "runtime/communicator.h"
#include "runtime/executable.h"

namespace tessera::cpu {

// The CPU as a device: a thread pool, an instruction set and the kernels for it. Results depend on
// the instruction set, never on the number of threads.
class CpuBackend {
 public:
  // `communicator`: to the other ranks of the job; without one, programs of several ranks can be
  // planned but not run. Must live longer.
  CpuBackend(int threads, Isa isa, Communicator* communicator = nullptr);
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;
  std::unique_ptr<Executable> compile(const Graph& graph, const PlanOptions& options = {}) const {
    return tessera::compile(graph, table_, options);
  }
  ThreadPool& pool() { return pool_; }
  Isa isa() const { return isa_; }
  const KernelTable& kernels() const { return table_; }

 private:
  ThreadPool pool_;
  Isa isa_;
  KernelTable table_;
};

}  // namespace tessera::cpu
