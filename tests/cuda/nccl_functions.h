#pragma once
#include <thread>
#include <vector>

#include "backends/cuda/nccl_api.h"
#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {

// The functions of the double of NCCL, and an id for ranks that meet.
struct NcclFunctions {
  explicit NcclFunctions(EmulatedCuda& cuda) {
#define TESSERA_LOAD(result, name, member, parameters) cuda.load(#name, member);
    TESSERA_NCCL_FUNCTIONS(TESSERA_LOAD)
    TESSERA_NCCL_LATER_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
    EXPECT_EQ(get_unique_id(&id), 0);
  }
#define TESSERA_MEMBER(result, name, member, parameters) result(*member) parameters = nullptr;
  TESSERA_NCCL_FUNCTIONS(TESSERA_MEMBER)
  TESSERA_NCCL_LATER_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
  ncclUniqueId id{};

  // Waits for what goes on behind the host. Whether it has gone well.
  bool settle(ncclComm* of) const {
    ncclResult error = kNcclInProgress;
    while (error == kNcclInProgress) {
      if (comm_get_async_error(of, &error) != 0) return false;
      std::this_thread::yield();
    }
    return error == 0;
  }
};

// What a rank gives to an exchange: 1, 2, 3, ... and its number in hundreds.
inline std::vector<float> part(int rank, size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = static_cast<float>(i + 1) + 100.0f * static_cast<float>(rank);
  return values;
}

}  // namespace tessera::cuda
