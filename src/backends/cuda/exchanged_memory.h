#pragma once
#include <cstdint>
#include <vector>

#include "backends/cuda/cuda_memory.h"
#include "backends/cuda/nccl_communicator.h"
#include "runtime/planned_program.h"

namespace tessera::cuda {

// An exchange of a program, and the blocks of the device's memory in which lies what it reads and
// writes, its scratch too. What lies in memory of the host is not among them.
struct ExchangedMemory {
  AxisSet axes;
  Lane lane = Lane::kCompute;
  std::vector<const DeviceBlock*> blocks;  // those of operand and scratch first
  size_t read = 0;                         // how many these are
  bool sums = false;
  uint64_t place = 0;  // a hash of where in the blocks operand and scratch lie
};
// In the order of the program, which is the same on all ranks.
std::vector<ExchangedMemory> exchanged_memory(const PlannedProgram& program, const CudaState& state,
                                              const CudaArenas& arenas);

// Registers it with the communicators that the exchanges go through, and makes that of sums known
// to peers, where they may read it. All ranks at the same time.
void make_known(const PlannedProgram& program, const std::vector<ExchangedMemory>& exchanges,
                NcclCommunicator& communicator);

}  // namespace tessera::cuda
