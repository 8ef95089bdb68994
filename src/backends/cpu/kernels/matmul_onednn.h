#pragma once
#include <memory>

#include "backends/cpu/kernels/matmul.h"

namespace tessera::cpu {

// oneDNN's matmul, one primitive per tile of C, each run by one thread: its own thread team is
// never started. Takes f32 products whose A is not transposed, and bf16 ones on AMX; declines C +=
// for bf16 C, empty matrices, and instruction sets weaker than the machine's usual one, since it
// chooses its own.
std::unique_ptr<const Matmul> make_onednn_matmul(const MatmulProblem& problem, Isa isa);

}  // namespace tessera::cpu
