#pragma once
#include <thread>

#include "backends/cuda/nccl_api.h"
#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {

// The functions of the double of NCCL, and an id for ranks that meet.
struct NcclFunctions {
  explicit NcclFunctions(EmulatedCuda& cuda) {
#define TESSERA_LOAD(result, name, member, parameters) cuda.load(#name, member);
    TESSERA_NCCL_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
    EXPECT_EQ(get_unique_id(&id), 0);
  }
#define TESSERA_MEMBER(result, name, member, parameters) result(*member) parameters = nullptr;
  TESSERA_NCCL_FUNCTIONS(TESSERA_MEMBER)
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

}  // namespace tessera::cuda
