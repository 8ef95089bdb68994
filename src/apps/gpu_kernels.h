#pragma once
#include <cstdint>
#include <string>

#include "backends/cuda/described_backend.h"
#include "programs/session.h"

namespace tessera {

// The kernels that a step of a planned job launches on an NVIDIA GPU of compute capability 80 or
// 90: registers, shared memory, spills and occupancy as nvcc compiled them. Lines that each end in
// a line break.
std::string gpu_kernels_text(cuda::DescribedBackend& backend, const Session& session,
                             int64_t micro_batches, int capability);

}  // namespace tessera
