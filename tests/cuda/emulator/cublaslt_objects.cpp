// Making, changing and ending what cublasLt's products are described by.
#include "cublaslt_objects.h"

#include <cstring>

namespace tessera::emulated_gpu {

LtObjects& lt_objects() {
  static auto* only = new LtObjects;
  return *only;
}
bool lt_wrong(const std::string& what) {
  found("cublasLt: " + what);
  return false;
}

namespace {

template <class Handle_, class Object>
cublasStatus make(Handle kind, std::deque<Object>& list, const Object& object, Handle_* made) {
  const std::lock_guard lock(machine().mutex);
  list.push_back(object);
  *made = make_handle<Handle_>(kind, static_cast<int>(list.size()) - 1);
  return kCublasSuccess;
}
template <class Handle_, class Object>
cublasStatus destroy(Handle kind, std::deque<Object>& list, Handle_ handle, const char* what) {
  const std::lock_guard lock(machine().mutex);
  Object* object = object_of(kind, list, handle, "cublasLt", what);
  if (!object) return kCublasInvalidValue;
  object->destroyed = true;
  return kCublasSuccess;
}
template <class T>
cublasStatus set(T* attribute, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) {
    lt_wrong("an attribute of the wrong size");
    return kCublasInvalidValue;
  }
  std::memcpy(attribute, value, bytes);
  return kCublasSuccess;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

cublasStatus cublasLtCreate(cublasLtHandle* handle) {
  const std::lock_guard lock(machine().mutex);
  if (ready(__func__) != kCudaSuccess) return kCublasNotInitialized;
  return make(Handle::kLibrary, lt_objects().libraries, LtLibrary{current_device()}, handle);
}
cublasStatus cublasLtDestroy(cublasLtHandle handle) {
  return destroy(Handle::kLibrary, lt_objects().libraries, handle, "handle");
}
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus status) {
  switch (status) {
    case kCublasSuccess: return "CUBLAS_STATUS_SUCCESS";
    case kCublasNotInitialized: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kCublasAllocFailed: return "CUBLAS_STATUS_ALLOC_FAILED";
    case kCublasInvalidValue: return "CUBLAS_STATUS_INVALID_VALUE";
    case kCublasArchMismatch: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case kCublasExecutionFailed: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kCublasNotSupported: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

cublasStatus cublasLtMatmulDescCreate(cublasLtMatmulDesc* desc, int compute, int scale) {
  return make(Handle::kDescription, lt_objects().descriptions, Description{compute, scale}, desc);
}
cublasStatus cublasLtMatmulDescDestroy(cublasLtMatmulDesc desc) {
  return destroy(Handle::kDescription, lt_objects().descriptions, desc, "description");
}
cublasStatus cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc desc, int attribute,
                                            const void* value, size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  Description* d =
      object_of(Handle::kDescription, lt_objects().descriptions, desc, __func__, "description");
  if (!d) return kCublasInvalidValue;
  switch (attribute) {
    case kMatmulDescTransposeA: return set(&d->transpose_a, value, bytes);
    case kMatmulDescTransposeB: return set(&d->transpose_b, value, bytes);
    case kMatmulDescEpilogue: return set(&d->epilogue, value, bytes);
    case kMatmulDescBiasPointer: return set(&d->bias, value, bytes);
    case kMatmulDescBiasDataType: return set(&d->bias_type, value, bytes);
    default: lt_wrong("an attribute of a description that is not known here");
  }
  return kCublasInvalidValue;
}

cublasStatus cublasLtMatrixLayoutCreate(cublasLtMatrixLayout* layout, int type, uint64_t rows,
                                        uint64_t columns, int64_t leading) {
  return make(Handle::kLayout, lt_objects().layouts,
              Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading},
              layout);
}
cublasStatus cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout layout) {
  return destroy(Handle::kLayout, lt_objects().layouts, layout, "layout");
}
cublasStatus cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout layout, int attribute,
                                              const void* value, size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  Layout* l = object_of(Handle::kLayout, lt_objects().layouts, layout, __func__, "layout");
  if (!l) return kCublasInvalidValue;
  if (attribute == kMatrixLayoutStridedBatchOffset) return set(&l->stride, value, bytes);
  if (attribute == kMatrixLayoutBatchCount) {
    int32_t count = 0;
    const cublasStatus status = set(&count, value, bytes);
    l->batches = count;
    return status;
  }
  lt_wrong("an attribute of a layout that is not known here");
  return kCublasInvalidValue;
}

cublasStatus cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference* preference) {
  return make(Handle::kPreference, lt_objects().preferences, Preference{}, preference);
}
cublasStatus cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference preference) {
  return destroy(Handle::kPreference, lt_objects().preferences, preference, "preference");
}
cublasStatus cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference preference,
                                                  int attribute, const void* value, size_t bytes) {
  const std::lock_guard lock(machine().mutex);
  Preference* p =
      object_of(Handle::kPreference, lt_objects().preferences, preference, __func__, "preference");
  if (!p) return kCublasInvalidValue;
  if (attribute == kPreferenceMaxWorkspaceBytes) return set(&p->workspace, value, bytes);
  if (attribute == kPreferenceReductionSchemeMask) return set(&p->schemes, value, bytes);
  if (attribute >= kPreferenceMinAlignmentA && attribute <= kPreferenceMinAlignmentD) {
    return set(&p->alignment[attribute - kPreferenceMinAlignmentA], value, bytes);
  }
  lt_wrong("an attribute of a preference that is not known here");
  return kCublasInvalidValue;
}

}  // extern "C"
