#pragma once
#include <cstdint>

namespace tessera::cuda {

// Who decides in which order sums between ranks are taken: NCCL, or the numbers of the ranks.
enum class SumOrder : uint8_t { kLibrary, kRanks };

}  // namespace tessera::cuda
