// What is declared here of CUDA's libraries and of NVTX, against NVIDIA's own headers.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "backends/cuda/cublaslt_api.h"
#include "backends/cuda/cudnn_api.h"
#include "backends/cuda/cupti_api.h"
#include "backends/cuda/driver_api.h"
#include "backends/cuda/nccl_api.h"
#include "profile/nvtx_api.h"

#if TESSERA_HAS_CUDA_H
#include <cuda.h>
#endif
#if TESSERA_HAS_CUBLASLT_H
#include <cublasLt.h>
#endif
#if TESSERA_HAS_NCCL_H
#include <nccl.h>
#endif
#if TESSERA_HAS_CUDNN_H && __has_include(<cuda_runtime_api.h>)
#include <cudnn.h>
#endif
#if TESSERA_HAS_CUPTI_H
#include <cupti.h>
#endif
#if TESSERA_HAS_NVTX3_NVTOOLSEXT_H
#include <nvtx3/nvToolsExt.h>
#endif

namespace tessera::cuda {
namespace {

// Passed in the same way: pointers, numbers of a size and kind (an enumeration is one), or
// structures of a size.
template <class A, class B>
constexpr bool passed_alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B> &&
           std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}
template <class A, class B>
struct Alike : std::false_type {};
template <class R, class... P, class S, class... Q>
requires(sizeof...(P) == sizeof...(Q)) struct Alike<R (*)(P...), S (*)(Q...)>
    : std::bool_constant<passed_alike<R, S>() && (passed_alike<P, Q>() && ...)> {
};

#define TESSERA_SAME(own, theirs) \
  EXPECT_EQ(static_cast<int64_t>(own), static_cast<int64_t>(::theirs))

#if TESSERA_HAS_CUDA_H
TEST(CudaHeaders, Driver) {
#define TESSERA_ALIKE(name, member, parameters) \
  EXPECT_TRUE((Alike<tessera::cuda::CUresult(*) parameters, decltype(&::name)>::value)) << #name;
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_ALIKE)
#undef TESSERA_ALIKE
  TESSERA_SAME(kCudaSuccess, CUDA_SUCCESS);
  TESSERA_SAME(kCudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
  TESSERA_SAME(kCudaErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  TESSERA_SAME(kCudaErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  TESSERA_SAME(kCudaErrorNoDevice, CUDA_ERROR_NO_DEVICE);
  TESSERA_SAME(kCudaErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
  TESSERA_SAME(kCudaErrorInvalidImage, CUDA_ERROR_INVALID_IMAGE);
  TESSERA_SAME(kCudaErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  TESSERA_SAME(kCudaErrorNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  TESSERA_SAME(kCudaErrorInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  TESSERA_SAME(kCudaErrorNotFound, CUDA_ERROR_NOT_FOUND);
  TESSERA_SAME(kCudaErrorNotReady, CUDA_ERROR_NOT_READY);
  TESSERA_SAME(kCudaErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  TESSERA_SAME(kCudaErrorLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  TESSERA_SAME(kCudaErrorLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  TESSERA_SAME(kCudaErrorPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  TESSERA_SAME(kCudaErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  TESSERA_SAME(kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  TESSERA_SAME(kCudaErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  TESSERA_SAME(kCudaErrorStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  TESSERA_SAME(kCudaErrorStreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  TESSERA_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  TESSERA_SAME(kEventDefault, CU_EVENT_DEFAULT);
  TESSERA_SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
  TESSERA_SAME(kStreamCaptureModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
  TESSERA_SAME(kStreamCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  TESSERA_SAME(kAttributeMaxSharedMemoryPerBlockOptin,
               CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  TESSERA_SAME(kAttributeMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  TESSERA_SAME(kAttributeComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  TESSERA_SAME(kAttributeComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  TESSERA_SAME(kFunctionAttributeMaxDynamicSharedSize,
               CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}
#else
TEST(CudaHeaders, Driver) { GTEST_SKIP() << "cuda.h is not installed"; }
#endif

#if TESSERA_HAS_CUBLASLT_H
TEST(CudaHeaders, CublasLt) {
#define TESSERA_ALIKE(result, name, member, parameters) \
  EXPECT_TRUE((Alike<result(*) parameters, decltype(&::name)>::value)) << #name;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_ALIKE)
#undef TESSERA_ALIKE
  EXPECT_EQ(sizeof(cublasLtMatmulAlgo), sizeof(::cublasLtMatmulAlgo_t));
  using Own = cublasLtMatmulHeuristicResult;
  using Theirs = ::cublasLtMatmulHeuristicResult_t;
  EXPECT_EQ(sizeof(Own), sizeof(Theirs));
  EXPECT_EQ(offsetof(Own, workspace_bytes), offsetof(Theirs, workspaceSize));
  EXPECT_EQ(offsetof(Own, state), offsetof(Theirs, state));
  EXPECT_EQ(kCublasSuccess, static_cast<int>(::CUBLAS_STATUS_SUCCESS));
  EXPECT_EQ(kCublasNotInitialized, static_cast<int>(::CUBLAS_STATUS_NOT_INITIALIZED));
  EXPECT_EQ(kCublasAllocFailed, static_cast<int>(::CUBLAS_STATUS_ALLOC_FAILED));
  EXPECT_EQ(kCublasInvalidValue, static_cast<int>(::CUBLAS_STATUS_INVALID_VALUE));
  EXPECT_EQ(kCublasArchMismatch, static_cast<int>(::CUBLAS_STATUS_ARCH_MISMATCH));
  EXPECT_EQ(kCublasExecutionFailed, static_cast<int>(::CUBLAS_STATUS_EXECUTION_FAILED));
  EXPECT_EQ(kCublasInternalError, static_cast<int>(::CUBLAS_STATUS_INTERNAL_ERROR));
  EXPECT_EQ(kCublasNotSupported, static_cast<int>(::CUBLAS_STATUS_NOT_SUPPORTED));
  EXPECT_EQ(kCudaReal32F, static_cast<int>(::CUDA_R_32F));
  EXPECT_EQ(kCudaReal64F, static_cast<int>(::CUDA_R_64F));
  EXPECT_EQ(kCudaReal16F, static_cast<int>(::CUDA_R_16F));
  EXPECT_EQ(kCudaReal16BF, static_cast<int>(::CUDA_R_16BF));
  EXPECT_EQ(kCublasCompute32F, static_cast<int>(::CUBLAS_COMPUTE_32F));
  EXPECT_EQ(kCublasCompute64F, static_cast<int>(::CUBLAS_COMPUTE_64F));
  EXPECT_EQ(kCublasOperationNone, static_cast<int>(::CUBLAS_OP_N));
  EXPECT_EQ(kCublasOperationTranspose, static_cast<int>(::CUBLAS_OP_T));
  EXPECT_EQ(kMatmulDescTransposeA, static_cast<int>(::CUBLASLT_MATMUL_DESC_TRANSA));
  EXPECT_EQ(kMatmulDescTransposeB, static_cast<int>(::CUBLASLT_MATMUL_DESC_TRANSB));
  EXPECT_EQ(kMatmulDescEpilogue, static_cast<int>(::CUBLASLT_MATMUL_DESC_EPILOGUE));
  EXPECT_EQ(kMatmulDescBiasPointer, static_cast<int>(::CUBLASLT_MATMUL_DESC_BIAS_POINTER));
  EXPECT_EQ(kMatmulDescBiasDataType, static_cast<int>(::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE));
  EXPECT_EQ(kEpilogueDefault, static_cast<unsigned>(::CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_EQ(kEpilogueBias, static_cast<unsigned>(::CUBLASLT_EPILOGUE_BIAS));
  EXPECT_EQ(kMatrixLayoutBatchCount, static_cast<int>(::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT));
  EXPECT_EQ(kMatrixLayoutStridedBatchOffset,
            static_cast<int>(::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
  EXPECT_EQ(kPreferenceMaxWorkspaceBytes,
            static_cast<int>(::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
  EXPECT_EQ(kPreferenceReductionSchemeMask,
            static_cast<int>(::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK));
  EXPECT_EQ(kPreferenceMinAlignmentA,
            static_cast<int>(::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES));
  EXPECT_EQ(kPreferenceMinAlignmentB,
            static_cast<int>(::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES));
  EXPECT_EQ(kPreferenceMinAlignmentC,
            static_cast<int>(::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES));
  EXPECT_EQ(kPreferenceMinAlignmentD,
            static_cast<int>(::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
  EXPECT_EQ(kReductionSchemeNone, static_cast<unsigned>(::CUBLASLT_REDUCTION_SCHEME_NONE));
  EXPECT_EQ(kReductionSchemeInPlace, static_cast<unsigned>(::CUBLASLT_REDUCTION_SCHEME_INPLACE));
  EXPECT_EQ(kReductionSchemeComputeType,
            static_cast<unsigned>(::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_EQ(kAlgoConfigSplitK, static_cast<int>(::CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
  EXPECT_EQ(kAlgoConfigReductionScheme, static_cast<int>(::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
}
#else
TEST(CudaHeaders, CublasLt) { GTEST_SKIP() << "cublasLt.h is not installed"; }
#endif

#if TESSERA_HAS_NCCL_H
TEST(CudaHeaders, Nccl) {
#define TESSERA_ALIKE(result, name, member, parameters) \
  EXPECT_TRUE((Alike<result(*) parameters, decltype(&::name)>::value)) << #name;
  TESSERA_NCCL_FUNCTIONS(TESSERA_ALIKE)
  TESSERA_NCCL_LATER_FUNCTIONS(TESSERA_ALIKE)
#undef TESSERA_ALIKE
  EXPECT_EQ(sizeof(ncclUniqueId), sizeof(::ncclUniqueId));
  using Theirs = ::ncclConfig_t;
  EXPECT_LE(sizeof(ncclConfig), sizeof(Theirs));
  EXPECT_EQ(offsetof(ncclConfig, magic), offsetof(Theirs, magic));
  EXPECT_EQ(offsetof(ncclConfig, version), offsetof(Theirs, version));
  EXPECT_EQ(offsetof(ncclConfig, blocking), offsetof(Theirs, blocking));
  EXPECT_EQ(offsetof(ncclConfig, cluster_size), offsetof(Theirs, cgaClusterSize));
  EXPECT_EQ(offsetof(ncclConfig, min_ctas), offsetof(Theirs, minCTAs));
  EXPECT_EQ(offsetof(ncclConfig, max_ctas), offsetof(Theirs, maxCTAs));
  EXPECT_EQ(offsetof(ncclConfig, net_name), offsetof(Theirs, netName));
  EXPECT_EQ(offsetof(ncclConfig, split_share), offsetof(Theirs, splitShare));
  const Theirs theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ncclConfig{}.magic, theirs.magic);
  EXPECT_EQ(ncclConfig{}.blocking, theirs.blocking);
  EXPECT_EQ(kNcclSuccess, static_cast<int>(::ncclSuccess));
  EXPECT_EQ(kNcclUnhandledCudaError, static_cast<int>(::ncclUnhandledCudaError));
  EXPECT_EQ(kNcclSystemError, static_cast<int>(::ncclSystemError));
  EXPECT_EQ(kNcclInternalError, static_cast<int>(::ncclInternalError));
  EXPECT_EQ(kNcclInvalidArgument, static_cast<int>(::ncclInvalidArgument));
  EXPECT_EQ(kNcclInvalidUsage, static_cast<int>(::ncclInvalidUsage));
  EXPECT_EQ(kNcclRemoteError, static_cast<int>(::ncclRemoteError));
  EXPECT_EQ(kNcclInProgress, static_cast<int>(::ncclInProgress));
  EXPECT_EQ(kNcclInt8, static_cast<int>(::ncclInt8));
  EXPECT_EQ(kNcclUint8, static_cast<int>(::ncclUint8));
  EXPECT_EQ(kNcclInt32, static_cast<int>(::ncclInt32));
  EXPECT_EQ(kNcclUint32, static_cast<int>(::ncclUint32));
  EXPECT_EQ(kNcclInt64, static_cast<int>(::ncclInt64));
  EXPECT_EQ(kNcclUint64, static_cast<int>(::ncclUint64));
  EXPECT_EQ(kNcclFloat16, static_cast<int>(::ncclFloat16));
  EXPECT_EQ(kNcclFloat32, static_cast<int>(::ncclFloat32));
  EXPECT_EQ(kNcclFloat64, static_cast<int>(::ncclFloat64));
  EXPECT_EQ(kNcclBfloat16, static_cast<int>(::ncclBfloat16));
  EXPECT_EQ(kNcclSum, static_cast<int>(::ncclSum));
  EXPECT_EQ(kNcclMax, static_cast<int>(::ncclMax));
  EXPECT_EQ(kNcclMin, static_cast<int>(::ncclMin));
}
#else
TEST(CudaHeaders, Nccl) { GTEST_SKIP() << "nccl.h is not installed"; }
#endif

#if TESSERA_HAS_CUDNN_H && __has_include(<cuda_runtime_api.h>)
// X(ours, theirs)
#define TESSERA_CUDNN_NUMBERS(X)                                             \
  X(kCudnnSuccess, CUDNN_STATUS_SUCCESS)                                     \
  X(kCudnnNotInitialized, CUDNN_STATUS_NOT_INITIALIZED)                      \
  X(kCudnnBadParam, CUDNN_STATUS_BAD_PARAM)                                  \
  X(kCudnnNotSupported, CUDNN_STATUS_NOT_SUPPORTED)                          \
  X(kCudnnExecutionFailed, CUDNN_STATUS_EXECUTION_FAILED)                    \
  X(kCudnnFloat, CUDNN_DATA_FLOAT)                                           \
  X(kCudnnInt32, CUDNN_DATA_INT32)                                           \
  X(kCudnnBFloat16, CUDNN_DATA_BFLOAT16)                                     \
  X(kCudnnBoolean, CUDNN_DATA_BOOLEAN)                                       \
  X(kCudnnPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)                     \
  X(kCudnnEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR)                           \
  X(kCudnnEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)                  \
  X(kCudnnHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)                   \
  X(kCudnnPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)                     \
  X(kCudnnKnobChoice, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)                  \
  X(kCudnnOperationPointwise, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)  \
  X(kCudnnOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)           \
  X(kCudnnVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)                \
  X(kCudnnTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR)                           \
  X(kCudnnMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR)                           \
  X(kCudnnOperationMatmul, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)        \
  X(kCudnnReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR)                     \
  X(kCudnnOperationReduction, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)  \
  X(kCudnnOperationReshape, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)      \
  X(kCudnnDeviceProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)             \
  X(kCudnnTypeHandle, CUDNN_TYPE_HANDLE)                                     \
  X(kCudnnTypeDataType, CUDNN_TYPE_DATA_TYPE)                                \
  X(kCudnnTypeBoolean, CUDNN_TYPE_BOOLEAN)                                   \
  X(kCudnnTypeInt64, CUDNN_TYPE_INT64)                                       \
  X(kCudnnTypePointer, CUDNN_TYPE_VOID_PTR)                                  \
  X(kCudnnTypeHeuristicsMode, CUDNN_TYPE_HEUR_MODE)                          \
  X(kCudnnTypeKnob, CUDNN_TYPE_KNOB_TYPE)                                    \
  X(kCudnnTypeNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE)                      \
  X(kCudnnTypePointwiseMode, CUDNN_TYPE_POINTWISE_MODE)                      \
  X(kCudnnTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR)                     \
  X(kCudnnTypeReduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE)                 \
  X(kCudnnTypeChar, CUDNN_TYPE_CHAR)                                         \
  X(kCudnnPointwiseMode, CUDNN_ATTR_POINTWISE_MODE)                          \
  X(kCudnnPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC)                \
  X(kCudnnPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS)                          \
  X(kCudnnHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE)                        \
  X(kCudnnHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)            \
  X(kCudnnHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS)                  \
  X(kCudnnHeuristicsDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)                \
  X(kCudnnConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE)                         \
  X(kCudnnConfigKnobs, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)                    \
  X(kCudnnConfigWorkspace, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)              \
  X(kCudnnPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)                      \
  X(kCudnnPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)               \
  X(kCudnnPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)           \
  X(kCudnnPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)                  \
  X(kCudnnKnobType, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)                        \
  X(kCudnnKnobValue, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)                      \
  X(kCudnnPointwiseDescriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR) \
  X(kCudnnPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)                  \
  X(kCudnnPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)                  \
  X(kCudnnPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)                  \
  X(kCudnnPointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)                  \
  X(kCudnnGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE)                     \
  X(kCudnnGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS)                    \
  X(kCudnnTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)                 \
  X(kCudnnTensorDataType, CUDNN_ATTR_TENSOR_DATA_TYPE)                       \
  X(kCudnnTensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS)                          \
  X(kCudnnTensorStrides, CUDNN_ATTR_TENSOR_STRIDES)                          \
  X(kCudnnTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID)                             \
  X(kCudnnTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL)                     \
  X(kCudnnTensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE)                    \
  X(kCudnnPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)                       \
  X(kCudnnPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)               \
  X(kCudnnPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)                  \
  X(kCudnnEngineGraph, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)                    \
  X(kCudnnEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)                       \
  X(kCudnnEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)                     \
  X(kCudnnEngineDevice, CUDNN_ATTR_ENGINE_DEVICEPROP)                        \
  X(kCudnnMatmulPrecision, CUDNN_ATTR_MATMUL_COMP_TYPE)                      \
  X(kCudnnMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC)                        \
  X(kCudnnMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC)                        \
  X(kCudnnMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC)                        \
  X(kCudnnMatmulDescriptor, CUDNN_ATTR_OPERATION_MATMUL_DESC)                \
  X(kCudnnReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR)                  \
  X(kCudnnReductionPrecision, CUDNN_ATTR_REDUCTION_COMP_TYPE)                \
  X(kCudnnReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)                  \
  X(kCudnnReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)                  \
  X(kCudnnReductionDescriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC)          \
  X(kCudnnReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)                      \
  X(kCudnnReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)                      \
  X(kCudnnDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)             \
  X(kCudnnAdd, CUDNN_POINTWISE_ADD)                                          \
  X(kCudnnMul, CUDNN_POINTWISE_MUL)                                          \
  X(kCudnnDiv, CUDNN_POINTWISE_DIV)                                          \
  X(kCudnnSub, CUDNN_POINTWISE_SUB)                                          \
  X(kCudnnExp, CUDNN_POINTWISE_EXP)                                          \
  X(kCudnnLog, CUDNN_POINTWISE_LOG)                                          \
  X(kCudnnIdentity, CUDNN_POINTWISE_IDENTITY)                                \
  X(kCudnnGreater, CUDNN_POINTWISE_CMP_GT)                                   \
  X(kCudnnGreaterEqual, CUDNN_POINTWISE_CMP_GE)                              \
  X(kCudnnIndex, CUDNN_POINTWISE_GEN_INDEX)                                  \
  X(kCudnnSelect, CUDNN_POINTWISE_BINARY_SELECT)                             \
  X(kCudnnReduceAdd, CUDNN_REDUCE_TENSOR_ADD)                                \
  X(kCudnnReduceMax, CUDNN_REDUCE_TENSOR_MAX)                                \
  X(kCudnnHeuristicsA, CUDNN_HEUR_MODE_A)                                    \
  X(kCudnnNoteNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)       \
  X(kCudnnKnobStages, CUDNN_KNOB_TYPE_STAGES)                                \
  X(kCudnnKnobKernelConfig, CUDNN_KNOB_TYPE_KERNEL_CFG)                      \
  X(kCudnnKnobClusterM, CUDNN_KNOB_TYPE_TILE_CGA_M)                          \
  X(kCudnnKnobStreamK, CUDNN_KNOB_TYPE_STREAM_K)                             \
  X(kCudnnKnobTileM, CUDNN_KNOB_TYPE_TILE_M)                                 \
  X(kCudnnKnobTileN, CUDNN_KNOB_TYPE_TILE_N)

TEST(CudaHeaders, Cudnn) {
  EXPECT_TRUE((std::is_same_v<cudnnDescriptor, ::cudnnBackendDescriptor_t>));
#define TESSERA_ALIKE(result, name, member, parameters) \
  EXPECT_TRUE((Alike<result(*) parameters, decltype(&::name)>::value)) << #name;
  TESSERA_CUDNN_FUNCTIONS(TESSERA_ALIKE)
#undef TESSERA_ALIKE
#define TESSERA_EQUAL(ours, theirs) EXPECT_EQ(ours, static_cast<int>(::theirs)) << #theirs;
  TESSERA_CUDNN_NUMBERS(TESSERA_EQUAL)
#undef TESSERA_EQUAL
}
#else
TEST(CudaHeaders, Cudnn) { GTEST_SKIP() << "cudnn.h is not installed"; }
#endif

#if TESSERA_HAS_CUPTI_H
// The newest record of a kind, which has all older ones at its begin.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using MemcpyRecord = CUpti_ActivityMemcpy6;
using MemsetRecord = CUpti_ActivityMemset4;
#else
using KernelRecord = CUpti_ActivityKernel9;
using MemcpyRecord = CUpti_ActivityMemcpy5;
using MemsetRecord = CUpti_ActivityMemset4;
#endif

TEST(CudaHeaders, Cupti) {
#define TESSERA_ALIKE(name, member, parameters) \
  EXPECT_TRUE((Alike<tessera::cuda::CUptiResult(*) parameters, decltype(&::name)>::value)) << #name;
  TESSERA_CUPTI_FUNCTIONS(TESSERA_ALIKE)
#undef TESSERA_ALIKE
  EXPECT_TRUE((Alike<CuptiBufferRequested, CUpti_BuffersCallbackRequestFunc>::value));
  EXPECT_TRUE((Alike<CuptiBufferCompleted, CUpti_BuffersCallbackCompleteFunc>::value));
  TESSERA_SAME(kCuptiSuccess, CUPTI_SUCCESS);
  TESSERA_SAME(kCuptiErrorInvalidParameter, CUPTI_ERROR_INVALID_PARAMETER);
  TESSERA_SAME(kCuptiErrorInvalidOperation, CUPTI_ERROR_INVALID_OPERATION);
  TESSERA_SAME(kCuptiErrorMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
  TESSERA_SAME(kCuptiErrorNotInitialized, CUPTI_ERROR_NOT_INITIALIZED);
  TESSERA_SAME(kCuptiErrorQueueEmpty, CUPTI_ERROR_QUEUE_EMPTY);
  TESSERA_SAME(kCuptiErrorInvalidKind, CUPTI_ERROR_INVALID_KIND);
  TESSERA_SAME(kCuptiErrorInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  TESSERA_SAME(kCuptiErrorMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  TESSERA_SAME(kCuptiMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
  TESSERA_SAME(kCuptiMemset, CUPTI_ACTIVITY_KIND_MEMSET);
  TESSERA_SAME(kCuptiDriver, CUPTI_ACTIVITY_KIND_DRIVER);
  TESSERA_SAME(kCuptiRuntime, CUPTI_ACTIVITY_KIND_RUNTIME);
  TESSERA_SAME(kCuptiConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  TESSERA_SAME(kCuptiExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  TESSERA_SAME(kCuptiCorrelationCustom0, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
  TESSERA_SAME(kCuptiFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  TESSERA_SAME(kCuptiCopyToDevice, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  TESSERA_SAME(kCuptiCopyToHost, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
  TESSERA_SAME(kCuptiCopyOnDevice, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
#define TESSERA_FIELD(Own, own, Theirs, theirs)            \
  EXPECT_EQ(offsetof(Own, own), offsetof(Theirs, theirs)); \
  EXPECT_GE(sizeof(Own::own), sizeof(Theirs::theirs)) << #own
  TESSERA_FIELD(CuptiRecord, kind, CUpti_Activity, kind);
  TESSERA_FIELD(CuptiKernel, start, KernelRecord, start);
  TESSERA_FIELD(CuptiKernel, end, KernelRecord, end);
  TESSERA_FIELD(CuptiKernel, device, KernelRecord, deviceId);
  TESSERA_FIELD(CuptiKernel, stream, KernelRecord, streamId);
  TESSERA_FIELD(CuptiKernel, grid, KernelRecord, gridX);
  TESSERA_FIELD(CuptiKernel, block, KernelRecord, blockX);
  TESSERA_FIELD(CuptiKernel, correlation, KernelRecord, correlationId);
  TESSERA_FIELD(CuptiKernel, name, KernelRecord, name);
  TESSERA_FIELD(CuptiMemcpy, copy_kind, MemcpyRecord, copyKind);
  TESSERA_FIELD(CuptiMemcpy, bytes, MemcpyRecord, bytes);
  TESSERA_FIELD(CuptiMemcpy, start, MemcpyRecord, start);
  TESSERA_FIELD(CuptiMemcpy, end, MemcpyRecord, end);
  TESSERA_FIELD(CuptiMemcpy, stream, MemcpyRecord, streamId);
  TESSERA_FIELD(CuptiMemcpy, correlation, MemcpyRecord, correlationId);
  TESSERA_FIELD(CuptiMemset, bytes, MemsetRecord, bytes);
  TESSERA_FIELD(CuptiMemset, start, MemsetRecord, start);
  TESSERA_FIELD(CuptiMemset, end, MemsetRecord, end);
  TESSERA_FIELD(CuptiMemset, stream, MemsetRecord, streamId);
  TESSERA_FIELD(CuptiMemset, correlation, MemsetRecord, correlationId);
  using External = CUpti_ActivityExternalCorrelation;
  TESSERA_FIELD(CuptiExternalCorrelation, external_kind, External, externalKind);
  TESSERA_FIELD(CuptiExternalCorrelation, external, External, externalId);
  TESSERA_FIELD(CuptiExternalCorrelation, correlation, External, correlationId);
#undef TESSERA_FIELD
  // What is read of a record lies inside of it.
  EXPECT_LE(sizeof(CuptiKernel), sizeof(KernelRecord));
  EXPECT_LE(sizeof(CuptiMemcpy), sizeof(MemcpyRecord));
  EXPECT_LE(sizeof(CuptiMemset), sizeof(MemsetRecord));
  EXPECT_LE(sizeof(CuptiExternalCorrelation), sizeof(External));
}
#else
TEST(CudaHeaders, Cupti) { GTEST_SKIP() << "cupti.h is not installed"; }
#endif

#if TESSERA_HAS_NVTX3_NVTOOLSEXT_H
TEST(CudaHeaders, Nvtx) {
  EXPECT_EQ(kNvtxTableOfCallbacks, static_cast<unsigned>(::NVTX_ETID_CALLBACKS));
  EXPECT_EQ(kNvtxTableOfVersion, static_cast<unsigned>(::NVTX_ETID_VERSIONINFO));
  EXPECT_EQ(kNvtxCore, static_cast<int>(::NVTX_CB_MODULE_CORE));
  EXPECT_EQ(kNvtxCore2, static_cast<int>(::NVTX_CB_MODULE_CORE2));
  EXPECT_EQ(kNvtxCoreFunctions, static_cast<size_t>(::NVTX_CBID_CORE_SIZE));
  EXPECT_EQ(kNvtxCore2Functions, static_cast<size_t>(::NVTX_CBID_CORE2_SIZE));
  EXPECT_EQ(kNvtxRangePush, static_cast<size_t>(::NVTX_CBID_CORE_RangePushA));
  EXPECT_EQ(kNvtxRangePop, static_cast<size_t>(::NVTX_CBID_CORE_RangePop));
  EXPECT_EQ(sizeof(NvtxCallbacks), sizeof(::NvtxExportTableCallbacks));
  EXPECT_EQ(offsetof(NvtxCallbacks, places_of_module),
            offsetof(::NvtxExportTableCallbacks, GetModuleFunctionTable));
  EXPECT_EQ(sizeof(NvtxVersion), sizeof(::NvtxExportTableVersionInfo));
  EXPECT_EQ(offsetof(NvtxVersion, set_version_of_tool),
            offsetof(::NvtxExportTableVersionInfo, SetInjectionNvtxVersion));
  EXPECT_EQ(NvtxVersion{}.version, static_cast<unsigned>(NVTX_VERSION));
  EXPECT_TRUE((Alike<NvtxRangePush, ::nvtxRangePushA_impl_fntype>::value));
  EXPECT_TRUE((Alike<NvtxRangePop, ::nvtxRangePop_impl_fntype>::value));
  // NVTX itself gives its tools as many.
  unsigned count = 0;
  ::NvtxFunctionTable places = nullptr;
  nvtxEtiGetModuleFunctionTable_v3(::NVTX_CB_MODULE_CORE, &places, &count);
  EXPECT_EQ(count, kNvtxCoreFunctions);
  EXPECT_EQ(places[0], nullptr);
  EXPECT_NE(places[kNvtxRangePush], nullptr);
  EXPECT_EQ(places[count], nullptr);
}
#else
TEST(CudaHeaders, Nvtx) { GTEST_SKIP() << "nvtx3/nvToolsExt.h is not installed"; }
#endif

}  // namespace
}  // namespace tessera::cuda
