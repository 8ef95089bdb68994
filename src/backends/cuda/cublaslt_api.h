#pragma once
#include <cstddef>
#include <cstdint>

#include "backends/cuda/driver_api.h"

// The part of cublasLt's interface that tessera calls, declared here so that it compiles without a
// CUDA toolkit: names, types and numbers are those of cublasLt.h of cuBLAS 12 and 13, held against
// it by a test where that is installed. All matrices are in column-major order, the default.

namespace tessera::cuda {

using cublasStatus = int;
struct cublasLtContext;
struct cublasLtDescription;
struct cublasLtLayout;
struct cublasLtPreference;
using cublasLtHandle = cublasLtContext*;
using cublasLtMatmulDesc = cublasLtDescription*;
using cublasLtMatrixLayout = cublasLtLayout*;
using cublasLtMatmulPreference = cublasLtPreference*;

// What an algorithm is, as plain bytes, which may be kept and used again with the same version.
struct cublasLtMatmulAlgo {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult {
  cublasLtMatmulAlgo algo;
  size_t workspace_bytes;
  cublasStatus state;  // the rest is only valid if this is success
  float waves;
  int reserved[4];
};

constexpr cublasStatus kCublasSuccess = 0, kCublasNotInitialized = 1, kCublasAllocFailed = 3,
                       kCublasInvalidValue = 7, kCublasArchMismatch = 8,
                       kCublasExecutionFailed = 13, kCublasInternalError = 14,
                       kCublasNotSupported = 15;
// cudaDataType: of elements, and of alpha and beta.
constexpr int kCudaReal32F = 0, kCudaReal64F = 1, kCudaReal16F = 2, kCudaReal16BF = 14;
// cublasComputeType_t: kCompute32F of operands of f32 is full f32, not TF32.
constexpr int kCublasCompute32F = 68, kCublasCompute64F = 70;
// cublasOperation_t, an int32_t as an attribute.
constexpr int kCublasOperationNone = 0, kCublasOperationTranspose = 1;
// cublasLtMatmulDescAttributes_t.
constexpr int kMatmulDescTransposeA = 3, kMatmulDescTransposeB = 4, kMatmulDescEpilogue = 7,
              kMatmulDescBiasPointer = 8, kMatmulDescBiasDataType = 26;
// cublasLtEpilogue_t, a uint32_t as an attribute: adds the bias (of as many elements as the result
// has rows, a pointer as an attribute, of a cudaDataType as an int32_t) before the result is
// rounded.
constexpr uint32_t kEpilogueDefault = 1, kEpilogueBias = 4;
// cublasLtMatrixLayoutAttribute_t: int32_t, and int64_t in elements.
constexpr int kMatrixLayoutBatchCount = 5, kMatrixLayoutStridedBatchOffset = 6;
// cublasLtMatmulPreferenceAttributes_t: uint64_t, uint32_t, and uint32_t each.
constexpr int kPreferenceMaxWorkspaceBytes = 1, kPreferenceReductionSchemeMask = 3,
              kPreferenceMinAlignmentA = 5, kPreferenceMinAlignmentB = 6,
              kPreferenceMinAlignmentC = 7, kPreferenceMinAlignmentD = 8;
// cublasLtReductionScheme_t: how partial sums of a product that is split along k are joined. These
// two are in an order that is always the same; sums in place (1) are not.
constexpr uint32_t kReductionSchemeNone = 0, kReductionSchemeInPlace = 1,
                   kReductionSchemeComputeType = 2;
// cublasLtMatmulAlgoConfigAttributes_t: int32_t, and uint32_t.
constexpr int kAlgoConfigSplitK = 2, kAlgoConfigReductionScheme = 3;

// X(result, name in the library, name here, parameters)
#define TESSERA_CUBLASLT_FUNCTIONS(X)                                                            \
  X(cublasStatus, cublasLtCreate, create, (cublasLtHandle * handle))                             \
  X(cublasStatus, cublasLtDestroy, destroy, (cublasLtHandle handle))                             \
  X(size_t, cublasLtGetVersion, get_version, ())                                                 \
  X(const char*, cublasLtGetStatusString, get_status_string, (cublasStatus status))              \
  X(cublasStatus, cublasLtMatmulDescCreate, matmul_desc_create,                                  \
    (cublasLtMatmulDesc * desc, int compute_type, int scale_type))                               \
  X(cublasStatus, cublasLtMatmulDescDestroy, matmul_desc_destroy, (cublasLtMatmulDesc desc))     \
  X(cublasStatus, cublasLtMatmulDescSetAttribute, matmul_desc_set_attribute,                     \
    (cublasLtMatmulDesc desc, int attribute, const void* value, size_t bytes))                   \
  X(cublasStatus, cublasLtMatrixLayoutCreate, matrix_layout_create,                              \
    (cublasLtMatrixLayout * layout, int type, uint64_t rows, uint64_t columns,                   \
     int64_t leading_dimension))                                                                 \
  X(cublasStatus, cublasLtMatrixLayoutDestroy, matrix_layout_destroy,                            \
    (cublasLtMatrixLayout layout))                                                               \
  X(cublasStatus, cublasLtMatrixLayoutSetAttribute, matrix_layout_set_attribute,                 \
    (cublasLtMatrixLayout layout, int attribute, const void* value, size_t bytes))               \
  X(cublasStatus, cublasLtMatmulPreferenceCreate, preference_create,                             \
    (cublasLtMatmulPreference * preference))                                                     \
  X(cublasStatus, cublasLtMatmulPreferenceDestroy, preference_destroy,                           \
    (cublasLtMatmulPreference preference))                                                       \
  X(cublasStatus, cublasLtMatmulPreferenceSetAttribute, preference_set_attribute,                \
    (cublasLtMatmulPreference preference, int attribute, const void* value, size_t bytes))       \
  X(cublasStatus, cublasLtMatmulAlgoGetHeuristic, algo_get_heuristic,                            \
    (cublasLtHandle handle, cublasLtMatmulDesc desc, cublasLtMatrixLayout a,                     \
     cublasLtMatrixLayout b, cublasLtMatrixLayout c, cublasLtMatrixLayout d,                     \
     cublasLtMatmulPreference preference, int requested, cublasLtMatmulHeuristicResult* results, \
     int* returned))                                                                             \
  X(cublasStatus, cublasLtMatmulAlgoCheck, algo_check,                                           \
    (cublasLtHandle handle, cublasLtMatmulDesc desc, cublasLtMatrixLayout a,                     \
     cublasLtMatrixLayout b, cublasLtMatrixLayout c, cublasLtMatrixLayout d,                     \
     const cublasLtMatmulAlgo* algo, cublasLtMatmulHeuristicResult* result))                     \
  X(cublasStatus, cublasLtMatmulAlgoConfigGetAttribute, algo_config_get_attribute,               \
    (const cublasLtMatmulAlgo* algo, int attribute, void* value, size_t bytes, size_t* written)) \
  X(cublasStatus, cublasLtMatmul, matmul,                                                        \
    (cublasLtHandle handle, cublasLtMatmulDesc desc, const void* alpha, const void* a,           \
     cublasLtMatrixLayout a_layout, const void* b, cublasLtMatrixLayout b_layout,                \
     const void* beta, const void* c, cublasLtMatrixLayout c_layout, void* d,                    \
     cublasLtMatrixLayout d_layout, const cublasLtMatmulAlgo* algo, void* workspace,             \
     size_t workspace_bytes, CUstream stream))

}  // namespace tessera::cuda
