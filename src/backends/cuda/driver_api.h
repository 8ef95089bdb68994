#pragma once
#include <cstddef>
#include <cstdint>

// The part of NVIDIA's driver interface that tessera calls, declared here so that it compiles
// without a CUDA toolkit: names, types and numbers are those of cuda.h, held against it by a test
// where that is installed. Source: CUDA Driver API, version 12 and later.

namespace tessera::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using CUcontext = CUctx_st*;
using CUmodule = CUmod_st*;
using CUfunction = CUfunc_st*;
using CUstream = CUstream_st*;
using CUevent = CUevent_st*;
using CUgraph = CUgraph_st*;
using CUgraphExec = CUgraphExec_st*;
struct CUuuid {
  char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};

constexpr CUresult kCudaSuccess = 0, kCudaErrorInvalidValue = 1, kCudaErrorOutOfMemory = 2,
                   kCudaErrorNotInitialized = 3, kCudaErrorNoDevice = 100,
                   kCudaErrorInvalidDevice = 101, kCudaErrorInvalidImage = 200,
                   kCudaErrorInvalidContext = 201, kCudaErrorNoBinaryForGpu = 209,
                   kCudaErrorPeerAccessUnsupported = 217, kCudaErrorInvalidHandle = 400,
                   kCudaErrorNotFound = 500, kCudaErrorNotReady = 600,
                   kCudaErrorIllegalAddress = 700, kCudaErrorLaunchOutOfResources = 701,
                   kCudaErrorPeerAccessAlreadyEnabled = 704, kCudaErrorLaunchFailed = 719,
                   kCudaErrorStreamCaptureUnsupported = 900,
                   kCudaErrorStreamCaptureInvalidated = 901, kCudaErrorStreamCaptureUnjoined = 904;

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0, kEventDisableTiming = 2;
constexpr unsigned kIpcLazyEnablePeerAccess = 1;
constexpr int kStreamCaptureModeGlobal = 0, kStreamCaptureModeThreadLocal = 1;
constexpr int kAttributeMaxSharedMemoryPerBlockOptin = 97, kAttributeMultiprocessorCount = 16,
              kAttributeComputeCapabilityMajor = 75, kAttributeComputeCapabilityMinor = 76;
constexpr int kFunctionAttributeMaxDynamicSharedSize = 8;

// X(name in the library, name here, parameters)
#define TESSERA_CUDA_DRIVER_FUNCTIONS(X)                                                          \
  X(cuInit, init, (unsigned flags))                                                               \
  X(cuDriverGetVersion, driver_get_version, (int* version))                                       \
  X(cuGetErrorName, get_error_name, (CUresult error, const char** text))                          \
  X(cuGetErrorString, get_error_string, (CUresult error, const char** text))                      \
  X(cuDeviceGetCount, device_get_count, (int* count))                                             \
  X(cuDeviceGet, device_get, (CUdevice * device, int ordinal))                                    \
  X(cuDeviceGetName, device_get_name, (char* name, int length, CUdevice device))                  \
  X(cuDeviceGetUuid, device_get_uuid, (CUuuid * uuid, CUdevice device))                           \
  X(cuDeviceGetPCIBusId, device_get_pci_bus_id, (char* id, int length, CUdevice device))          \
  X(cuDeviceGetAttribute, device_get_attribute, (int* value, int attribute, CUdevice device))     \
  X(cuDeviceTotalMem_v2, device_total_mem, (size_t * bytes, CUdevice device))                     \
  X(cuDevicePrimaryCtxRetain, primary_context_retain, (CUcontext * context, CUdevice device))     \
  X(cuDevicePrimaryCtxRelease_v2, primary_context_release, (CUdevice device))                     \
  X(cuCtxSetCurrent, context_set_current, (CUcontext context))                                    \
  X(cuMemGetInfo_v2, mem_get_info, (size_t * free, size_t * total))                               \
  X(cuMemAlloc_v2, mem_alloc, (CUdeviceptr * memory, size_t bytes))                               \
  X(cuMemFree_v2, mem_free, (CUdeviceptr memory))                                                 \
  X(cuMemHostAlloc, mem_host_alloc, (void** memory, size_t bytes, unsigned flags))                \
  X(cuMemFreeHost, mem_free_host, (void* memory))                                                 \
  X(cuMemcpyHtoDAsync_v2, copy_to_device,                                                         \
    (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                            \
  X(cuMemcpyDtoHAsync_v2, copy_to_host,                                                           \
    (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                                  \
  X(cuMemcpyDtoDAsync_v2, copy_on_device,                                                         \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                            \
  X(cuMemsetD8Async, fill_bytes,                                                                  \
    (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                         \
  X(cuDeviceCanAccessPeer, device_can_access_peer, (int* can, CUdevice device, CUdevice peer))    \
  X(cuCtxEnablePeerAccess, enable_peer_access, (CUcontext peer, unsigned flags))                  \
  X(cuIpcGetMemHandle, ipc_get_handle, (CUipcMemHandle * handle, CUdeviceptr memory))             \
  X(cuIpcOpenMemHandle_v2, ipc_open_handle,                                                       \
    (CUdeviceptr * memory, CUipcMemHandle handle, unsigned flags))                                \
  X(cuIpcCloseMemHandle, ipc_close_handle, (CUdeviceptr memory))                                  \
  X(cuModuleLoadData, module_load_data, (CUmodule * module, const void* image))                   \
  X(cuModuleUnload, module_unload, (CUmodule module))                                             \
  X(cuModuleGetFunction, module_get_function,                                                     \
    (CUfunction * function, CUmodule module, const char* name))                                   \
  X(cuFuncSetAttribute, function_set_attribute, (CUfunction function, int attribute, int value))  \
  X(cuLaunchKernel, launch_kernel,                                                                \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                  \
     void** parameters, void** extra))                                                            \
  X(cuStreamCreateWithPriority, stream_create, (CUstream * stream, unsigned flags, int priority)) \
  X(cuStreamDestroy_v2, stream_destroy, (CUstream stream))                                        \
  X(cuStreamSynchronize, stream_synchronize, (CUstream stream))                                   \
  X(cuStreamWaitEvent, stream_wait_event, (CUstream stream, CUevent event, unsigned flags))       \
  X(cuStreamBeginCapture_v2, stream_begin_capture, (CUstream stream, int mode))                   \
  X(cuStreamEndCapture, stream_end_capture, (CUstream stream, CUgraph * graph))                   \
  X(cuGraphInstantiateWithFlags, graph_instantiate,                                               \
    (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                          \
  X(cuGraphLaunch, graph_launch, (CUgraphExec executable, CUstream stream))                       \
  X(cuGraphExecDestroy, graph_exec_destroy, (CUgraphExec executable))                             \
  X(cuGraphDestroy, graph_destroy, (CUgraph graph))                                               \
  X(cuEventCreate, event_create, (CUevent * event, unsigned flags))                               \
  X(cuEventDestroy_v2, event_destroy, (CUevent event))                                            \
  X(cuEventRecord, event_record, (CUevent event, CUstream stream))                                \
  X(cuEventQuery, event_query, (CUevent event))                                                   \
  X(cuEventSynchronize, event_synchronize, (CUevent event))                                       \
  X(cuEventElapsedTime, event_elapsed_time, (float* milliseconds, CUevent begin, CUevent end))

}  // namespace tessera::cuda
