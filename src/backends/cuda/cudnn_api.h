#pragma once
#include <cstddef>
#include <cstdint>

#include "backends/cuda/driver_api.h"

// The part of cuDNN's backend interface that tessera calls, declared here so that it compiles
// without cuDNN: names, types and numbers are those of cudnn.h of cuDNN 9, held against it by a
// test where that is installed. A computation is a graph of operations, each a descriptor whose
// attributes are set one by one and which is finalized before others refer to it.

namespace tessera::cuda {

using cudnnStatus = int;
struct cudnnContext;
using cudnnHandle = cudnnContext*;
using cudnnDescriptor = void*;

constexpr cudnnStatus kCudnnSuccess = 0, kCudnnNotInitialized = 1001, kCudnnBadParam = 2000,
                      kCudnnNotSupported = 3000, kCudnnExecutionFailed = 5000;
// cudnnDataType_t.
constexpr int kCudnnFloat = 0, kCudnnInt32 = 4, kCudnnBFloat16 = 9, kCudnnBoolean = 11;
// cudnnBackendDescriptorType_t.
constexpr int kCudnnPointwise = 0, kCudnnEngine = 2, kCudnnEngineConfig = 3, kCudnnHeuristics = 4,
              kCudnnPlan = 5, kCudnnKnobChoice = 7, kCudnnOperationPointwise = 13,
              kCudnnOperationGraph = 15, kCudnnVariantPack = 16, kCudnnTensor = 17,
              kCudnnMatmul = 18, kCudnnOperationMatmul = 19, kCudnnReduction = 21,
              kCudnnOperationReduction = 22, kCudnnOperationReshape = 31,
              kCudnnDeviceProperties = 38;
// cudnnBackendAttributeType_t: what the bytes of an attribute are.
constexpr int kCudnnTypeHandle = 0, kCudnnTypeDataType = 1, kCudnnTypeBoolean = 2,
              kCudnnTypeInt64 = 3, kCudnnTypePointer = 6, kCudnnTypeHeuristicsMode = 8,
              kCudnnTypeKnob = 9, kCudnnTypeNumericalNote = 11, kCudnnTypePointwiseMode = 14,
              kCudnnTypeDescriptor = 15, kCudnnTypeReduction = 18, kCudnnTypeChar = 24;
// cudnnBackendAttributeName_t.
constexpr int kCudnnPointwiseMode = 0, kCudnnPointwisePrecision = 1, kCudnnPointwiseAxis = 9,
              kCudnnHeuristicsMode = 200, kCudnnHeuristicsGraph = 201,
              kCudnnHeuristicsResults = 202, kCudnnHeuristicsDevice = 204, kCudnnConfigEngine = 300,
              kCudnnConfigKnobs = 302, kCudnnConfigWorkspace = 303, kCudnnPlanHandle = 400,
              kCudnnPlanConfig = 401, kCudnnPlanWorkspace = 402, kCudnnPlanDevice = 407,
              kCudnnKnobType = 600, kCudnnKnobValue = 601, kCudnnPointwiseDescriptor = 750,
              kCudnnPointwiseX = 751, kCudnnPointwiseB = 752, kCudnnPointwiseY = 753,
              kCudnnPointwiseT = 758, kCudnnGraphHandle = 800, kCudnnGraphOperations = 801,
              kCudnnTensorAlignment = 900, kCudnnTensorDataType = 901, kCudnnTensorDims = 902,
              kCudnnTensorStrides = 903, kCudnnTensorId = 906, kCudnnTensorIsVirtual = 907,
              kCudnnTensorIsByValue = 908, kCudnnPackIds = 1000, kCudnnPackPointers = 1001,
              kCudnnPackWorkspace = 1003, kCudnnEngineGraph = 1300, kCudnnEngineIndex = 1301,
              kCudnnEngineNotes = 1303, kCudnnEngineDevice = 1307, kCudnnMatmulPrecision = 1500,
              kCudnnMatmulA = 1520, kCudnnMatmulB = 1521, kCudnnMatmulC = 1522,
              kCudnnMatmulDescriptor = 1523, kCudnnReductionOperator = 1600,
              kCudnnReductionPrecision = 1601, kCudnnReductionX = 1610, kCudnnReductionY = 1611,
              kCudnnReductionDescriptor = 1612, kCudnnReshapeX = 2200, kCudnnReshapeY = 2201,
              kCudnnDeviceJson = 2702;
// cudnnPointwiseMode_t: y = x op b; kCudnnSelect: t ? x : b; kCudnnIndex: the place along an axis.
constexpr int kCudnnAdd = 0, kCudnnMul = 1, kCudnnDiv = 6, kCudnnSub = 9, kCudnnExp = 13,
              kCudnnLog = 15, kCudnnIdentity = 21, kCudnnGreater = 302, kCudnnGreaterEqual = 303,
              kCudnnIndex = 501, kCudnnSelect = 601;
// cudnnReduceTensorOp_t.
constexpr int kCudnnReduceAdd = 0, kCudnnReduceMax = 3;
// cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t, cudnnBackendKnobType_t.
constexpr int kCudnnHeuristicsA = 3, kCudnnNoteNondeterministic = 4;
constexpr int kCudnnKnobStages = 14, kCudnnKnobKernelConfig = 24, kCudnnKnobClusterM = 27,
              kCudnnKnobStreamK = 38, kCudnnKnobTileM = 40, kCudnnKnobTileN = 41;

// X(result, name in the library, name here, parameters)
#define TESSERA_CUDNN_FUNCTIONS(X)                                                                \
  X(size_t, cudnnGetVersion, get_version, ())                                                     \
  X(const char*, cudnnGetErrorString, get_error_string, (cudnnStatus status))                     \
  X(void, cudnnGetLastErrorString, get_last_error_string, (char* text, size_t bytes))             \
  X(cudnnStatus, cudnnCreate, create, (cudnnHandle * handle))                                     \
  X(cudnnStatus, cudnnDestroy, destroy, (cudnnHandle handle))                                     \
  X(cudnnStatus, cudnnSetStream, set_stream, (cudnnHandle handle, CUstream stream))               \
  X(cudnnStatus, cudnnBackendCreateDescriptor, create_descriptor,                                 \
    (int type, cudnnDescriptor* descriptor))                                                      \
  X(cudnnStatus, cudnnBackendDestroyDescriptor, destroy_descriptor, (cudnnDescriptor descriptor)) \
  X(cudnnStatus, cudnnBackendSetAttribute, set_attribute,                                         \
    (cudnnDescriptor descriptor, int name, int type, int64_t count, const void* values))          \
  X(cudnnStatus, cudnnBackendGetAttribute, get_attribute,                                         \
    (cudnnDescriptor descriptor, int name, int type, int64_t wanted, int64_t* count,              \
     void* values))                                                                               \
  X(cudnnStatus, cudnnBackendFinalize, finalize, (cudnnDescriptor descriptor))                    \
  X(cudnnStatus, cudnnBackendExecute, execute,                                                    \
    (cudnnHandle handle, cudnnDescriptor plan, cudnnDescriptor variant_pack))

}  // namespace tessera::cuda
