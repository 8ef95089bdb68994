// What is declared here of CUDA's driver, cublasLt and NCCL, against their own headers.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "backends/cuda/cublaslt_api.h"
#include "backends/cuda/driver_api.h"
#include "backends/cuda/nccl_api.h"

#if TESSERA_HAS_CUDA_H
#include <cuda.h>
#endif
#if TESSERA_HAS_CUBLASLT_H
#include <cublasLt.h>
#endif
#if TESSERA_HAS_NCCL_H
#include <nccl.h>
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

#if TESSERA_HAS_CUDA_H
TEST(CudaHeaders, Driver) {
#define TESSERA_ALIKE(name, member, parameters) \
  EXPECT_TRUE((Alike<tessera::cuda::CUresult(*) parameters, decltype(&::name)>::value)) << #name;
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_ALIKE)
#undef TESSERA_ALIKE
  EXPECT_EQ(kCudaSuccess, static_cast<int>(::CUDA_SUCCESS));
  EXPECT_EQ(kCudaErrorInvalidValue, static_cast<int>(::CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(kCudaErrorOutOfMemory, static_cast<int>(::CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(kCudaErrorNotInitialized, static_cast<int>(::CUDA_ERROR_NOT_INITIALIZED));
  EXPECT_EQ(kCudaErrorNoDevice, static_cast<int>(::CUDA_ERROR_NO_DEVICE));
  EXPECT_EQ(kCudaErrorInvalidDevice, static_cast<int>(::CUDA_ERROR_INVALID_DEVICE));
  EXPECT_EQ(kCudaErrorInvalidImage, static_cast<int>(::CUDA_ERROR_INVALID_IMAGE));
  EXPECT_EQ(kCudaErrorInvalidContext, static_cast<int>(::CUDA_ERROR_INVALID_CONTEXT));
  EXPECT_EQ(kCudaErrorNoBinaryForGpu, static_cast<int>(::CUDA_ERROR_NO_BINARY_FOR_GPU));
  EXPECT_EQ(kCudaErrorInvalidHandle, static_cast<int>(::CUDA_ERROR_INVALID_HANDLE));
  EXPECT_EQ(kCudaErrorNotFound, static_cast<int>(::CUDA_ERROR_NOT_FOUND));
  EXPECT_EQ(kCudaErrorNotReady, static_cast<int>(::CUDA_ERROR_NOT_READY));
  EXPECT_EQ(kCudaErrorIllegalAddress, static_cast<int>(::CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_EQ(kCudaErrorLaunchOutOfResources, static_cast<int>(::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES));
  EXPECT_EQ(kCudaErrorLaunchFailed, static_cast<int>(::CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_EQ(kCudaErrorStreamCaptureUnsupported,
            static_cast<int>(::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
  EXPECT_EQ(kCudaErrorStreamCaptureInvalidated,
            static_cast<int>(::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
  EXPECT_EQ(kCudaErrorStreamCaptureUnjoined,
            static_cast<int>(::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
  EXPECT_EQ(kStreamNonBlocking, static_cast<unsigned>(::CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(kEventDefault, static_cast<unsigned>(::CU_EVENT_DEFAULT));
  EXPECT_EQ(kEventDisableTiming, static_cast<unsigned>(::CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(kStreamCaptureModeGlobal, static_cast<int>(::CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(kStreamCaptureModeThreadLocal, static_cast<int>(::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(kAttributeMaxSharedMemoryPerBlockOptin,
            static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  EXPECT_EQ(kAttributeMultiprocessorCount,
            static_cast<int>(::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(kAttributeComputeCapabilityMajor,
            static_cast<int>(::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(kAttributeComputeCapabilityMinor,
            static_cast<int>(::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_EQ(kFunctionAttributeMaxDynamicSharedSize,
            static_cast<int>(::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
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

}  // namespace
}  // namespace tessera::cuda
