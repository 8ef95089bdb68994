#pragma once
#include "backends/cuda/nccl_communicator.h"
#include "backends/cuda/sum_order.h"
#include "runtime/kernel_table.h"

namespace tessera::cuda {

// Exchanges between ranks. Without a communicator a program can be compiled and planned for any
// mesh, but not run. Groups are made when the first op that needs them is prepared, so all ranks
// must compile the same programs in the same order. Sums of NCCL's order are the same in every run
// on the same ranks; bf16 and f16 travel as f32 then and are rounded once. Sums in rank order:
// rank_order_sums.h. `table`, from which conversions and transpositions come, must stay where it
// is.
void register_collective_kernels(KernelTable& table, Device& device, NcclCommunicator* communicator,
                                 SumOrder order);

}  // namespace tessera::cuda
