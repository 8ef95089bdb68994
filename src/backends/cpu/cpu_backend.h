#pragma once
#include <memory>

#include "backends/cpu/cpu_kernels.h"
#include "runtime/executable.h"

namespace tessera::cpu {

// The CPU as a device: a thread pool, an instruction set and the kernels for it. Results depend on
// the instruction set, never on the number of threads.
class CpuBackend {
 public:
  CpuBackend(int threads, Isa isa);
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
