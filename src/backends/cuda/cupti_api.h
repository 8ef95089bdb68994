#pragma once
#include <cstddef>
#include <cstdint>

#include "backends/cuda/driver_api.h"

// The part of CUPTI's activity interface that tessera calls, declared here so that it compiles
// without CUPTI: names, types and numbers are those of cupti_activity.h of CUPTI 12 and later, held
// against it by a test where that is installed. Records are declared as far as they are read: what
// later versions added stands behind.

namespace tessera::cuda {

using CUptiResult = int;

constexpr CUptiResult kCuptiSuccess = 0, kCuptiErrorInvalidParameter = 1,
                      kCuptiErrorInvalidOperation = 7, kCuptiErrorMaxLimitReached = 12,
                      kCuptiErrorNotInitialized = 15, kCuptiErrorQueueEmpty = 18,
                      kCuptiErrorInvalidKind = 21, kCuptiErrorInsufficientPrivileges = 35,
                      kCuptiErrorMultipleSubscribers = 39;
// CUpti_ActivityKind.
constexpr int kCuptiMemcpy = 1, kCuptiMemset = 2, kCuptiDriver = 4, kCuptiRuntime = 5,
              kCuptiConcurrentKernel = 10, kCuptiExternalCorrelation = 39;
// CUpti_ExternalCorrelationKind, of what a program numbers for itself.
constexpr int kCuptiCorrelationCustom0 = 3;
constexpr uint32_t kCuptiFlushForced = 1;
// CUpti_ActivityMemcpyKind.
constexpr uint8_t kCuptiCopyToDevice = 1, kCuptiCopyToHost = 2, kCuptiCopyOnDevice = 8;

// Every record begins with its kind; the address of one is a multiple of 8, that of its fields only
// as far as they say.
struct CuptiRecord {
  int kind;
};
// CUpti_ActivityKernel4 and later. Times in nanoseconds of cuptiGetTimestamp; 0: not known.
struct CuptiKernel {
  int kind;
  uint8_t cache_config, shared_memory_config;
  uint16_t registers;
  int cache_requested, cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_a_thread, local_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
};
// CUpti_ActivityMemcpy and later.
struct CuptiMemcpy {
  int kind;
  uint8_t copy_kind, from_kind, to_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};
// CUpti_ActivityMemset and later.
struct CuptiMemset {
  int kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};
// CUpti_ActivityExternalCorrelation: the number that a program gave to a call, and that of CUPTI.
struct CuptiExternalCorrelation {
  int kind, external_kind;
  uint64_t external;
  uint32_t correlation, reserved;
};

using CuptiBufferRequested = void (*)(uint8_t** buffer, size_t* size, size_t* most_records);
using CuptiBufferCompleted = void (*)(CUcontext context, uint32_t stream, uint8_t* buffer,
                                      size_t size, size_t valid);

// X(name in the library, name here, parameters)
#define TESSERA_CUPTI_FUNCTIONS(X)                                                    \
  X(cuptiGetVersion, get_version, (uint32_t * version))                               \
  X(cuptiGetTimestamp, get_timestamp, (uint64_t * nanoseconds))                       \
  X(cuptiGetResultString, get_result_string, (CUptiResult result, const char** text)) \
  X(cuptiActivityRegisterCallbacks, register_callbacks,                               \
    (CuptiBufferRequested requested, CuptiBufferCompleted completed))                 \
  X(cuptiActivityEnable, enable, (int kind))                                          \
  X(cuptiActivityDisable, disable, (int kind))                                        \
  X(cuptiActivityFlushAll, flush_all, (uint32_t flags))                               \
  X(cuptiActivityGetNextRecord, get_next_record,                                      \
    (uint8_t * buffer, size_t valid, CuptiRecord * *record))                          \
  X(cuptiActivityGetNumDroppedRecords, get_dropped,                                   \
    (CUcontext context, uint32_t stream, size_t * dropped))                           \
  X(cuptiActivityPushExternalCorrelationId, push_external, (int kind, uint64_t id))   \
  X(cuptiActivityPopExternalCorrelationId, pop_external, (int kind, uint64_t* last))

}  // namespace tessera::cuda
