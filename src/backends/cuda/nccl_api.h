#pragma once
#include <climits>
#include <cstddef>

#include "backends/cuda/driver_api.h"

// The part of NCCL's interface that tessera calls, declared here so that it compiles without NCCL:
// names, types and numbers are those of nccl.h of NCCL 2.18 and later, held against it by a test
// where that is installed.

namespace tessera::cuda {

using ncclResult = int;
struct ncclComm;

struct ncclUniqueId {
  char internal[128];
};

constexpr ncclResult kNcclSuccess = 0, kNcclUnhandledCudaError = 1, kNcclSystemError = 2,
                     kNcclInternalError = 3, kNcclInvalidArgument = 4, kNcclInvalidUsage = 5,
                     kNcclRemoteError = 6, kNcclInProgress = 7;
// ncclDataType_t.
constexpr int kNcclInt8 = 0, kNcclUint8 = 1, kNcclInt32 = 2, kNcclUint32 = 3, kNcclInt64 = 4,
              kNcclUint64 = 5, kNcclFloat16 = 6, kNcclFloat32 = 7, kNcclFloat64 = 8,
              kNcclBfloat16 = 9;
// ncclRedOp_t.
constexpr int kNcclSum = 0, kNcclMax = 2, kNcclMin = 3;

// ncclConfig_t as it was in 2.18, in front of what later versions added: the library reads as much
// as `size` and `version` say.
struct ncclConfig {
  size_t size = sizeof(ncclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  // INT_MIN: not given
  int cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// X(result, name in the library, name here, parameters)
#define TESSERA_NCCL_FUNCTIONS(X)                                                          \
  X(ncclResult, ncclGetVersion, get_version, (int* version))                               \
  X(ncclResult, ncclGetUniqueId, get_unique_id, (ncclUniqueId * id))                       \
  X(ncclResult, ncclCommInitRankConfig, comm_init_rank_config,                             \
    (ncclComm * *comm, int ranks, ncclUniqueId id, int rank, ncclConfig* config))          \
  X(ncclResult, ncclCommSplit, comm_split,                                                 \
    (ncclComm * comm, int color, int key, ncclComm** made, ncclConfig* config))            \
  X(ncclResult, ncclCommGetAsyncError, comm_get_async_error,                               \
    (ncclComm * comm, ncclResult * error))                                                 \
  X(ncclResult, ncclCommFinalize, comm_finalize, (ncclComm * comm))                        \
  X(ncclResult, ncclCommDestroy, comm_destroy, (ncclComm * comm))                          \
  X(ncclResult, ncclCommAbort, comm_abort, (ncclComm * comm))                              \
  X(const char*, ncclGetErrorString, get_error_string, (ncclResult result))                \
  X(const char*, ncclGetLastError, get_last_error, (ncclComm * comm))                      \
  X(ncclResult, ncclAllReduce, all_reduce,                                                 \
    (const void* from, void* to, size_t count, int type, int reduction, ncclComm* comm,    \
     CUstream stream))                                                                     \
  X(ncclResult, ncclReduceScatter, reduce_scatter,                                         \
    (const void* from, void* to, size_t received, int type, int reduction, ncclComm* comm, \
     CUstream stream))                                                                     \
  X(ncclResult, ncclAllGather, all_gather,                                                 \
    (const void* from, void* to, size_t sent, int type, ncclComm* comm, CUstream stream))  \
  X(ncclResult, ncclSend, send,                                                            \
    (const void* from, size_t count, int type, int peer, ncclComm* comm, CUstream stream)) \
  X(ncclResult, ncclRecv, receive,                                                         \
    (void* to, size_t count, int type, int peer, ncclComm* comm, CUstream stream))         \
  X(ncclResult, ncclGroupStart, group_start, ())                                           \
  X(ncclResult, ncclGroupEnd, group_end, ())

// The same of what came with 2.19.
#define TESSERA_NCCL_LATER_FUNCTIONS(X)                           \
  X(ncclResult, ncclCommRegister, comm_register,                  \
    (ncclComm * comm, void* memory, size_t bytes, void** handle)) \
  X(ncclResult, ncclCommDeregister, comm_deregister, (ncclComm * comm, void* handle))

}  // namespace tessera::cuda
